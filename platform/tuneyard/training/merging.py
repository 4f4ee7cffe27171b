"""Adds an adapter to the weights of its base model, for a model folder that needs no PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tuneyard.training.adapter_reach import refuse_shared_weights
from tuneyard.training.generation_settings import save_with_settings


def merge(
    base: str, adapter: Path, folder: Path, *, dtype: torch.dtype | str, revision: str | None, trust: bool, quantization: Any | None
) -> None:
    """Write the merged weights into `folder`, on the calling rank.

    `quantization`: of a QLoRA task. The adapter was trained on top of the rounded weights, so it is added to those.
    Raises BadInput for an adapter that no merge can take.
    """
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(
        load_base(base, dtype=dtype, revision=revision, trust=trust, quantization=quantization), str(adapter)
    )
    refuse_shared_weights(adapted)
    save_here(adapted.merge_and_unload(), folder)


def load_base(base: str, *, dtype: torch.dtype | str, revision: str | None, trust: bool, quantization: Any | None) -> Any:
    """The base model in host memory; of a QLoRA task, with weights that were rounded to 4 bits and back."""
    options = {"revision": revision, "dtype": dtype, "trust_remote_code": trust}
    if quantization is None:
        return AutoModelForCausalLM.from_pretrained(base, **options)
    rounded = AutoModelForCausalLM.from_pretrained(base, quantization_config=quantization, device_map="cpu", **options)
    return rounded.dequantize().to(dtype)


def save_here(model: Any, folder: Path) -> None:
    """Save on the calling rank: transformers saves only on rank 0, and every machine needs its own copy."""
    model.should_save_on_this_rank = lambda _is_main_process: True
    save_with_settings(model, folder)
