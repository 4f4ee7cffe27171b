"""`tuneyard merge`: the adapter of a finished task becomes part of its base, and the result is proven before it is committed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from tuneyard.api import BadInput, JobFailed
from tuneyard.api.local_files import looks_like_path
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.storage import fetch_folder
from tuneyard.storage.errors import os_errors
from tuneyard.storage.filling import fill, refuse_filled
from tuneyard.storage.staging import staging
from tuneyard.training.generation_settings import write_end_tokens
from tuneyard.training.generators import kept_generators
from tuneyard.training.library_state import clean_libraries
from tuneyard.training.merging import load_base, merge
from tuneyard.training.model_card import card_of_merged
from tuneyard.training.models import DTYPES, quantization
from tuneyard.training.origin import Origin
from tuneyard.training.provenance.certificate import FILE, Certificate, file_hashes

_ROWS, _LENGTH, _SEED = 3, 24, 7
_NOISE, _FLOOR = 4.0, 1e-5
"""The merged model may differ from the adapter by this multiple of the error of its dtype. The floor: different kernels in fp32."""
_BESIDE = "use the adapter beside its base model: vLLM and PEFT load both"


@dataclass(frozen=True)
class Merged:
    """Relative differences of logits, root mean square over a few rows of tokens: of the merged model to base and adapter; of one rounding
    of its weights; and of the adapter to its base.
    """

    uri: str
    dtype: str
    difference: float
    rounding: float
    effect: float

    @property
    def is_lost(self) -> bool:
        """Whether rounding changes as much as the adapter."""
        return 0 < self.effect <= self.rounding


def merge_run(adapter_uri: str, origin: Origin, target: str, *, dtype: str | None, trust: bool) -> Merged:
    """Write the base with its adapter as a model folder at `target`, completely or not at all.

    `dtype`: bf16, fp16 or fp32; else that of the run. Raises BadInput if `target` is not empty or the adapter cannot be merged, and
    JobFailed if the merged model does not compute what the adapter does.
    """
    refuse_filled(target)
    if origin.from_scratch:
        raise BadInput(f"the adapter's base is {origin.base} with random weights (model.init: scratch), which were not kept", _BESIDE)
    temporary = tempfile.TemporaryDirectory(prefix="tuneyard-merge-")
    with temporary as scratch, staging(target, Path(scratch)) as staged, clean_libraries():
        adapter = fetch_folder(adapter_uri, Path(scratch) / "adapter")
        base = str(fetch_folder(origin.base, Path(scratch) / "base")) if looks_like_path(origin.base) else origin.base
        _refuse_other_base(adapter, base, origin.base)
        try:
            chosen = dtype or origin.precision or _dtype_of(base, origin.revision, trust=trust)
            how: dict[str, Any] = {
                "dtype": DTYPES[chosen],
                "revision": origin.revision,
                "trust": trust,
                "quantization": quantization(origin.quantized, chosen),
            }
            adapted = _adapted(base, adapter, how)
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise BadInput(f"{adapter_uri} cannot be added to {origin.base}: {cause}", "name its base model: --base MODEL") from error
        try:
            with os_errors(str(staged), "write"):
                merge(adapted, staged)
        except BadInput as error:
            raise BadInput(error.cause, _BESIDE) from error
        del adapted
        merged = _proven(base, adapter, staged, target, chosen, how)
        _dress(staged, adapter, base, origin.revision, trust=trust)
        figures = {"difference": merged.difference, "rounding": merged.rounding, "effect": merged.effect}
        fill(target, staged, {"adapter": adapter_uri, **origin.to_dict(), "dtype": chosen, **figures}, move=True)
    return merged


def _refuse_other_base(adapter: Path, base: str, named: str) -> None:
    """Raises BadInput if the base of the adapter's certificate has changed since it was trained on. A base that the user names is taken."""
    if not (adapter / FILE).is_file() or not Path(base).is_dir():
        return
    certificate = Certificate.from_json((adapter / FILE).read_text(), f"{adapter}/{FILE}")
    if certificate.request["model_uri"] != named:
        return
    there = file_hashes(Path(base))
    changed = [name for name, mark in certificate.base.items() if there.get(name) != mark and not name.endswith(".md")]
    if changed:
        raise BadInput(
            f"the base {named} has changed since the adapter was trained on it: {', '.join(changed[:3])}",
            "restore it, or name a copy of it: --base MODEL",
        )


def _proven(base: str, adapter: Path, folder: Path, target: str, dtype: str, how: Mapping[str, Any]) -> Merged:
    """Compare the written model with base and adapter. All compute in fp32, so that what differs is in the weights."""
    adapted = _adapted(base, adapter, how).float()
    rows = _rows(int(adapted.get_input_embeddings().num_embeddings))
    expected = _logits(adapted, rows)
    with adapted.disable_adapter():
        effect = _difference(_logits(adapted, rows), expected)
    changed = tuple(
        f"{name.removeprefix('base_model.model.')}." for name, module in adapted.named_modules() if hasattr(module, "base_layer")
    )
    del adapted
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=how["trust"])
    found = _logits(merged, rows)
    with torch.no_grad(), kept_generators():
        torch.manual_seed(_SEED)
        eps = torch.finfo(how["dtype"]).eps
        for name, weight in merged.named_parameters():
            if name.startswith(changed):
                weight.mul_(1 + eps * (torch.rand_like(weight) - 0.5))
    rounding = _difference(_logits(merged, rows), found)
    difference = _difference(found, expected)
    if not difference <= _NOISE * rounding + _FLOOR:  # NaN too
        raise JobFailed(
            f"the merged model differs from the adapter by {difference:.1e} of its logits, and one rounding to {dtype} by {rounding:.1e}: "
            "nothing was written",
            f"{_BESIDE}; and report this, with the names of the model and of the adapter's modules",
        )
    return Merged(target, dtype, difference, rounding, effect)


def _adapted(base: str, adapter: Path, how: Mapping[str, Any]) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(load_base(base, **how), str(adapter))


def _dtype_of(base: str, revision: str | None, *, trust: bool) -> str:
    """The dtype in which a base is stored, for an adapter that does not say the precision of its run."""
    stored = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=trust).get_text_config().dtype
    return next((name for name, dtype in DTYPES.items() if dtype == stored), "fp32")


def _rows(vocabulary: int) -> torch.Tensor:
    """A few rows of tokens, the same for each model of that size."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(vocabulary, (_ROWS, _LENGTH), generator=generator)


def _logits(model: Any, rows: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=rows).logits
    return logits.double()


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).square().mean().sqrt() / other.square().mean().sqrt())


def _dress(folder: Path, adapter: Path, base: str, revision: str | None, *, trust: bool) -> None:
    """The tokenizer with its chat template, end tokens and model card, as beside the adapter. PEFT alone saves no tokenizer there."""
    has_own = (adapter / "tokenizer_config.json").exists()
    where, of = (adapter, None) if has_own else (base, revision)
    tokenizer = read_tokenizer(where, revision=of, trust=trust)
    tokenizer.save_pretrained(folder)
    if (adapter / "README.md").exists():
        (folder / "README.md").write_text(card_of_merged((adapter / "README.md").read_text()))
    ends = GenerationConfig.from_pretrained(adapter).eos_token_id if (adapter / "generation_config.json").exists() else None
    write_end_tokens(folder, tokenizer, ends[0] if isinstance(ends, list) else ends)
