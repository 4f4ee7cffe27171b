"""Writes a model folder as one GGUF file, tensor by tensor: no more than one is in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, GenerationConfig

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.training.export.architectures import (
    Architecture,
    architecture_of,
    context_length,
    head_width,
    rope_factors,
    rope_of,
)
from tuneyard.training.export.kinds import Quantize
from tuneyard.training.export.vocabulary import Vocabulary, vocabulary_of

_FILE_TYPES = {
    Quantize.F32: gguf.LlamaFileType.ALL_F32,
    Quantize.F16: gguf.LlamaFileType.MOSTLY_F16,
    Quantize.BF16: gguf.LlamaFileType.MOSTLY_BF16,
    Quantize.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}
_OF_DTYPE = {torch.bfloat16: Quantize.BF16, torch.float16: Quantize.F16, torch.float32: Quantize.F32}
_NOT_STORED = ("rotary_emb.inv_freq",)
"""Buffers of older folders, which both sides compute."""


@dataclass(frozen=True)
class Source:
    """A model folder that can be exported."""

    folder: Path
    config: Any
    tokenizer: Any
    ends: list[int]
    architecture: Architecture

    @property
    def own_type(self) -> Quantize:
        """The type in which the folder holds the weights."""
        return _OF_DTYPE.get(self.config.dtype, Quantize.F32)


def source_of(folder: Path) -> Source:
    """Read what is needed to export a folder. Raises BadInput if it cannot be."""
    try:
        config = AutoConfig.from_pretrained(folder)
    except (ValueError, OSError) as error:
        raise BadInput(
            f"the configuration of {folder} cannot be read: {said_by(error)}", "models with Python code of their own cannot be exported"
        ) from error
    architecture = architecture_of(config)
    tokenizer = read_tokenizer(folder)
    named: Any = tokenizer.eos_token_id
    if (folder / "generation_config.json").exists():
        named = GenerationConfig.from_pretrained(folder).eos_token_id or named
    ends = named if isinstance(named, list) else [] if named is None else [named]
    return Source(folder, config, tokenizer, list(ends), architecture)


def write_gguf(source: Source, path: Path, kind: Quantize, name: str) -> None:
    """Write the file. Raises BadInput for a weight that llama.cpp does not know, or that the type cannot hold."""
    writer = gguf.GGUFWriter(path, source.architecture.name)
    _write_settings(writer, source, kind, name)
    _write_vocabulary(writer, vocabulary_of(source.tokenizer, int(source.config.vocab_size), source.ends))
    if source.tokenizer.chat_template is not None:
        writer.add_chat_template(source.tokenizer.chat_template)
    shapes = list(_tensors(source, kind, with_data=False))
    for target, data, stored in shapes:
        writer.add_tensor_info(target, data.shape, np.dtype(np.float32), _bytes(data.shape, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for target, data, stored in _tensors(source, kind, with_data=True):
        writer.write_tensor_data(_stored(data, stored, target))
    writer.close()


def _write_settings(writer: gguf.GGUFWriter, source: Source, kind: Quantize, name: str) -> None:
    config, rope = source.config, rope_of(source.config)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config.vocab_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(context_length(config, source.architecture))
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_width(config))
    writer.add_value_length(head_width(config))
    writer.add_rope_dimension_count(head_width(config))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    local = (getattr(config, "rope_parameters", None) or {}).get("sliding_attention")
    if local is not None:
        writer.add_rope_freq_base_swa(local["rope_theta"])
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if source.architecture.windows and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)


def _write_vocabulary(writer: gguf.GGUFWriter, found: Vocabulary) -> None:
    writer.add_tokenizer_model(found.model)
    writer.add_tokenizer_pre(found.pre)
    writer.add_token_list(found.tokens)
    writer.add_token_types(found.types)
    writer.add_token_scores(found.scores)
    writer.add_token_merges(found.merges)
    for name, token in found.special.items():
        getattr(writer, f"add_{name}_token_id")(token)
    writer.add_add_bos_token(found.adds_bos)
    writer.add_add_eos_token(found.adds_eos)
    if found.model == "llama":
        writer.add_add_space_prefix(found.adds_space)


def _tensors(source: Source, kind: Quantize, *, with_data: bool) -> Iterator[tuple[str, Any, gguf.GGMLQuantizationType]]:
    """Name in GGUF, tensor and type of each weight. Without data: tensors that have only a shape, on torch's device `meta`."""
    config = source.config
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == source.architecture.name)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    factors = rope_factors(config)
    if factors is not None:
        yield "rope_freqs.weight", factors, gguf.GGMLQuantizationType.F32
    for file in _files(source.folder):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                if name.endswith(_NOT_STORED) or (name == "lm_head.weight" and config.tie_word_embeddings):
                    continue
                target = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if target is None:
                    advice = "write a model folder (tuneyard export --format merged), and use vLLM or transformers"
                    raise BadInput(f"llama.cpp has no tensor for {name} of {config.architectures[0]}", advice)
                weight = weights.get_tensor(name) if with_data else torch.empty(weights.get_slice(name).get_shape(), device="meta")
                if source.architecture.change is not None:
                    weight = source.architecture.change(weight.float(), name, config)
                yield target, weight, _type(weight, target, kind)


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    if not (folder / "model.safetensors").exists():
        raise BadInput(f"{folder} has no model.safetensors", "save the model again (save_pretrained writes it)")
    return [folder / "model.safetensors"]


def _type(weight: torch.Tensor, target: str, kind: Quantize) -> gguf.GGMLQuantizationType:
    """As llama.cpp's own converter chooses: vectors and norms in F32, and F16 where rows are no whole blocks."""
    if weight.ndim < 2 or target.endswith("_norm.weight"):
        return gguf.GGMLQuantizationType.F32
    stored = gguf.GGMLQuantizationType[kind.name]
    block, _ = gguf.GGML_QUANT_SIZES[stored]
    return stored if weight.shape[-1] % block == 0 else gguf.GGMLQuantizationType.F16


def _bytes(shape: Any, stored: gguf.GGMLQuantizationType) -> int:
    block, size = gguf.GGML_QUANT_SIZES[stored]
    return int(np.prod(shape) // block * size)


def rounded_as(weight: torch.Tensor, kind: Quantize) -> torch.Tensor:
    """A matrix after it was written as this type and read."""
    stored = _type(weight, "", kind)
    data = gguf.quants.quantize(np.ascontiguousarray(weight.float().numpy()), stored)
    return torch.from_numpy(np.array(gguf.quants.dequantize(data, stored)))


def _stored(weight: torch.Tensor, stored: gguf.GGMLQuantizationType, target: str) -> Any:
    data = gguf.quants.quantize(np.ascontiguousarray(weight.float().numpy()), stored)
    if stored is gguf.GGMLQuantizationType.F16 and not np.isfinite(data).all():
        raise BadInput(f"{target} has weights that f16 cannot hold (above 65,504)", "take --quantize bf16 or f32")
    return data
