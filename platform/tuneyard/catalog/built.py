"""The shape of a model that `families` does not describe exactly, read off the model itself: transformers builds it without memory.

Each matrix becomes a projection; its stage in the layer follows from its module's name and its dimensions. All other parameters count as
`other_parameters`, so that the sum is the model's own. Needs torch and transformers; without them, planning uses the estimate of
`families`, and says so (`ModelShape.assumed`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.config_reader import ConfigReader
from tuneyard.catalog.encoders import refuse_encoders
from tuneyard.catalog.families import shape_from_config
from tuneyard.catalog.shapes import ModelShape, Projection, Stage

_QUERIES = re.compile(r"^(q|query|qkv|wq|w_?pack|c_attn|project_q)(_|$|kv)|query_key_value", re.IGNORECASE)
_FEED_FORWARD = re.compile(r"mlp|ffn|ff\b|feed_?forward|moe|expert|\bfc", re.IGNORECASE)
_DOWN = re.compile(r"down|out|w2|wo$|c_proj|4h_to_h|fc2|fc_out|lin2", re.IGNORECASE)
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts", "top_k")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers", "num_blocks")
_MOST_LAYERS, _MOST_EXPERTS = 1_000, 200_000
_MOST_WORDS = 200
"""Characters of the words of another library that an error repeats."""
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_CROSS = re.compile(r"cross|encoder_attn")


def model_shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape of a `config.json`: exact if its family is known, else read off the built model, else assumed.

    Raises BadInput if none of them gives a shape, and for encoders.
    """
    refuse_encoders(config)
    refusal: BadInput | None = None
    try:
        shape = shape_from_config(config)
        if shape.exact:
            return shape
    except BadInput as error:
        shape, refusal = None, error
    built = _built(config)
    if isinstance(built, ModelShape):
        return built
    if shape is not None:
        return replace(shape, assumed=built)
    assert refusal is not None
    raise BadInput(f"{refusal.cause}: {built}", refusal.next_step)


def _built(config: Mapping[str, Any]) -> ModelShape | str:
    """The shape, or why there is none: transformers is not installed, or cannot build the model."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return "transformers is not installed here"
    if not _buildable(config):
        return "it has too many layers or experts to be built"
    return _built_from(json.dumps(config, default=str))


@lru_cache(maxsize=64)
def _built_from(text: str) -> ModelShape | str:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = json.loads(text, object_hook=_number)
        full = AutoConfig.for_model(str(config.pop("model_type", "")), **config)
        with torch.device("meta"), _quiet():
            model = AutoModelForCausalLM.from_config(full, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 -- each architecture's own code fails in its own way on a configuration that it does not like
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return f"transformers cannot build it here ({why[:_MOST_WORDS]})"
    return _read_off(model, full.get_text_config()) or "its width, depth, embedding or head has no name that is known here"


def _number(values: dict[str, Any]) -> Any:
    """The object, or the number for which it stands: JSON lacks infinity, and transformers writes it as `{"__float__": "Infinity"}`."""
    return float(values["__float__"]) if values.keys() == {"__float__"} else values


def _buildable(config: Mapping[str, Any]) -> bool:
    """Whether building takes a few seconds at most: modules cost time and memory, weights without data do not."""
    reader = ConfigReader(config)
    layers, experts = (_largest(reader, names) for names in (_LAYERS, _EXPERTS))
    return layers <= _MOST_LAYERS and layers * max(1, experts) <= _MOST_EXPERTS


def _largest(reader: ConfigReader, names: tuple[str, ...]) -> int:
    found = [reader.value(name, default=0) for name in names]
    return max((value for value in found if isinstance(value, int)), default=0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses notices about kernels that are not installed: nothing is computed."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@dataclass(frozen=True)
class _Matrix:
    """A weight matrix of one layer."""

    path: str
    name: str
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    active: int = 1
    adaptable: bool = True

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.name, self.inputs, self.outputs, self.bias, self.copies, self.active, self.adaptable)


def _read_off(model: Any, text: Any) -> ModelShape | None:
    hidden, layers = _positive(text, "hidden_size"), _positive(text, "num_hidden_layers")
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if hidden is None or layers is None or head is None or embedding is None:
        return None
    matrices = list(_matrices(model, _positive(text, *_CHOSEN) or 1, _positive(text, *_EXPERTS), hidden))
    inside = [matrix for matrix in matrices if matrix.path != _path_of(model, head)]
    shape = ModelShape(
        model_type=str(getattr(text, "model_type", "")),
        layers=layers,
        hidden=hidden,
        vocab=int(head.weight.shape[0]),
        max_positions=_positive(text, "max_position_embeddings", "n_positions", "max_seq_len") or 2048,
        tied=head.weight is embedding.weight,
        projections=(*_grouped(inside, hidden), _head(head)),
        other_parameters=0,
        embedding_name=_path_of(model, embedding).rpartition(".")[2],
        keeps_last_output=True,
        exact=False,
        **_heads(text, hidden),
        **_feed_forward(inside, hidden),
        **_window(text, layers, _attention_layers(model, text, layers)),
    )
    return replace(shape, other_parameters=sum(p.numel() for p in model.parameters()) - shape.parameters)


def _heads(text: Any, hidden: int) -> dict[str, Any]:
    heads = _positive(text, "num_attention_heads") or 1
    value_dim = _positive(text, "v_head_dim", "head_dim") or max(1, hidden // heads)
    latent = _latent_head(text)
    key_value_heads = heads if latent else _positive(text, "num_key_value_heads") or heads
    return {"heads": heads, "kv_heads": key_value_heads, "head_dim": latent or value_dim, "value_dim": value_dim}


def _feed_forward(inside: list[_Matrix], hidden: int) -> dict[str, Any]:
    experts = [matrix for matrix in inside if matrix.copies > 1]
    up = [matrix for matrix in inside if _stage(matrix, hidden) == "up"]
    down = [matrix for matrix in inside if _stage(matrix, hidden) == "down"]
    expert_ffn = next((matrix.inputs for matrix in down if matrix.copies > 1), 0)
    wide, narrow = sum(each.outputs * each.copies for each in up), sum(each.inputs * each.copies for each in down)
    return {
        "ffn": max((matrix.inputs for matrix in down if matrix.copies == 1), default=expert_ffn or hidden),
        "gated": wide > 1.5 * narrow,
        "experts": max((matrix.copies for matrix in experts), default=0),
        "experts_per_token": max((matrix.active for matrix in experts), default=0),
        "expert_ffn": expert_ffn,
    }


def _latent_head(text: Any) -> int | None:
    """Width of a query head in multi-head latent attention; None for other kinds."""
    rotated, plain = _positive(text, "qk_rope_head_dim"), _positive(text, "qk_nope_head_dim")
    return rotated + plain if rotated and plain else None


def _matrices(model: Any, active: int, experts: int | None, hidden: int) -> Iterator[_Matrix]:
    """Linear layers, Conv1D of old models, experts in one tensor, and routers that are a bare matrix."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(module, torch.nn.Linear):
            alone = re.search(r"experts\.\d+\.", path) is None
            yield _Matrix(path, name, module.in_features, module.out_features, module.bias is not None, active=1 if alone else 0)
        elif isinstance(module, Conv1D):
            yield _Matrix(path, name, module.weight.shape[0], module.weight.shape[1], bias=True)
        elif any(_of_experts(tensor, experts) for tensor in module.parameters(recurse=False)) or _flat_experts(name, module):
            yield from _experts(path, module, active, experts, hidden)
        elif "router" in type(module).__name__.lower() and getattr(getattr(module, "weight", None), "ndim", 0) == 2:
            yield _Matrix(path, name, module.weight.shape[1], module.weight.shape[0], adaptable=False)


def _of_experts(tensor: Any, experts: int | None) -> bool:
    return bool(tensor.ndim == 3 and tensor.shape[0] == experts and min(tensor.shape[1:]) > 1)


def _flat_experts(name: str, module: Any) -> bool:
    return name == "experts" and isinstance(getattr(module, "num_experts", None), int)


def _experts(path: str, module: Any, active: int, experts: int | None, hidden: int) -> Iterator[_Matrix]:
    """Matrices of experts: tensors (experts, outputs, inputs), or flat ones (experts * outputs, inputs). Some models keep them transposed;
    the position of the layer's width shows it.
    """
    count: int = getattr(module, "num_experts", None) or experts or 1
    for name, tensor in module.named_parameters(recurse=False):
        if tensor.ndim < 2 or "bias" in name:
            continue
        outputs, inputs = (tensor.shape[1], tensor.shape[2]) if tensor.ndim == 3 else (tensor.shape[0] // count, tensor.shape[1])
        width = outputs if _DOWN.search(name) else inputs
        if width != hidden:
            outputs, inputs = inputs, outputs
        yield _Matrix(f"{path}.{name}", name, inputs, outputs, copies=count, active=active, adaptable=False)


def _grouped(matrices: list[_Matrix], hidden: int) -> tuple[Projection, ...]:
    """Equal matrices of several layers as one projection."""
    counts = Counter(matrix.key for matrix in matrices)
    first = {matrix.key: matrix for matrix in reversed(matrices)}
    return tuple(
        Projection(
            name=matrix.name,
            inputs=matrix.inputs,
            outputs=matrix.outputs,
            stage=_stage(matrix, hidden),
            layers=counts[key],
            copies=matrix.copies,
            active=matrix.active,
            bias=matrix.bias,
            targets=(matrix.name,) if matrix.adaptable else (),
            stacked=matrix.copies > 1,
        )
        for key, matrix in first.items()
    )


def _stage(matrix: _Matrix, hidden: int) -> Stage:
    if _FEED_FORWARD.search(matrix.path):
        few = matrix.outputs < hidden // 4 and matrix.name in ("gate", "router", "shared_expert_gate", "wg", "weight")
        down = matrix.outputs == hidden and (matrix.inputs != hidden or _DOWN.search(matrix.name) is not None)
        return "router" if few else "down" if down else "up"
    if matrix.outputs == hidden and not _QUERIES.search(matrix.name) and not matrix.name.lower().startswith(("k", "v", "in_")):
        return "output"
    return "input" if matrix.inputs == hidden else "latent"


def _head(head: Any) -> Projection:
    outputs, inputs = head.weight.shape
    has_bias = getattr(head, "bias", None) is not None
    return Projection(name="lm_head", inputs=inputs, outputs=outputs, stage="head", layers=1, bias=has_bias, targets=("lm_head",))


def _attention_layers(model: Any, text: Any, layers: int) -> int:
    """Layers with attention between pairs of tokens; state-space layers, convolutions and linear attention have none."""
    found = sum(
        any(_QUERIES.search(name) for name, _ in module.named_children()) and not _CROSS.search(path)
        for path, module in model.named_modules()
        if path
    )
    kinds = [str(kind) for kind in getattr(text, "layer_types", None) or ()]
    other = sum(not kind.endswith(("attention", "hybrid")) or "linear" in kind for kind in kinds)
    return max(0, min(found, layers - other))


def _window(text: Any, layers: int, attending: int) -> dict[str, Any]:
    """The sliding window. Layers without attention count as layers whose window is the token itself."""
    window = _positive(text, "sliding_window", "attention_window_size")
    kinds = [str(kind) for kind in getattr(text, "layer_types", None) or ()]
    sliding = sum(kind == "sliding_attention" for kind in kinds)
    if attending < layers:
        return {"sliding_window": 1, "sliding_layers": layers - attending}
    return {"sliding_window": window, "sliding_layers": sliding} if window and sliding else {}


def _path_of(model: Any, wanted: Any) -> str:
    return next((path for path, module in model.named_modules() if module is wanted), "")


def _positive(config: Any, *names: str) -> int | None:
    """The first of these fields that is a positive whole number. A field that differs by layer raises its own error, and counts as
    absent.
    """
    for name in names:
        with suppress(Exception):
            value = getattr(config, name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
