"""Adds an adapter to the weights of its base model, for a model folder that needs no PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from tuneyard.training.adapter_reach import refuse_shared_weights
from tuneyard.training.generation_settings import save_with_settings


def merge(adapted: Any, folder: Path) -> Any:
    """Merge a PeftModel, write it into `folder` on the calling rank, and return it. Raises BadInput for an adapter that no merge can
    take.
    """
    refuse_shared_weights(adapted)
    merged = adapted.merge_and_unload()
    save_here(merged, folder)
    return merged


def load_base(base: str, *, dtype: torch.dtype | str, revision: str | None, trust: bool, quantization: Any | None, **attention: str) -> Any:
    """The base model in host memory.

    `quantization`: of a QLoRA task. Its adapter was trained on top of weights that were rounded to 4 bits, so these are, too.
    """
    options = {"revision": revision, "dtype": dtype, "trust_remote_code": trust, **attention}
    if quantization is None:
        return AutoModelForCausalLM.from_pretrained(base, **options)
    rounded = AutoModelForCausalLM.from_pretrained(base, quantization_config=quantization, device_map="cpu", **options)
    transposed = [name for name, module in rounded.named_modules() if getattr(module, "source_cls", None) is Conv1D]
    rounded = rounded.dequantize().to(dtype)
    for name in transposed:
        rounded.set_submodule(name, _as_conv1d(rounded.get_submodule(name)))
    return rounded


def _as_conv1d(linear: nn.Linear) -> Conv1D:
    """GPT-2's form of a linear layer, whose weight is transposed. Dequantization leaves torch's form, in which it would be saved."""
    layer = Conv1D(linear.out_features, linear.in_features)
    layer.weight = nn.Parameter(linear.weight.detach().T.contiguous(), requires_grad=False)
    layer.bias = nn.Parameter(linear.bias.detach(), requires_grad=False)
    return layer


def save_here(model: Any, folder: Path) -> None:
    """Save on the calling rank: transformers saves only on rank 0, and every machine needs its own copy."""
    model.should_save_on_this_rank = lambda _is_main_process: True
    save_with_settings(model, folder)
