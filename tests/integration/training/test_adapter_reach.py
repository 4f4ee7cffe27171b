"""LoRA beside weights that a layer reads past the module: left out, or refused where they are named."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
import torch
from tests.zoo.configs import tiny_config_of
from transformers import AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.training.adapter_reach import out_of_reach

KINDS = (
    "mamba",
    "falcon_mamba",
    "mamba2",
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "nemotron_h",
    "zamba",
    "zamba2",
    "jamba",
    "llama",
    "qwen3_next",
)


def tiny(kind: str) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(tiny_config_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_layers_read_past_their_modules_is_left_out(kind: str) -> None:
    """By the source: `self.out_proj.weight` in a forward pass."""
    source = inspect.getsource(importlib.import_module(f"transformers.models.{kind}.modeling_{kind}"))
    read = {name for line in source.splitlines() if "init." not in line for name in re.findall(r"self\.(\w+_proj)\.weight", line)}
    recorded = {"router"} if 'OutputRecorder(nn.Linear, layer_name="router")' in source else set()

    assert set(out_of_reach(tiny(kind), "all-linear")) == read | recorded


def test_a_linear_that_multiplies_in_groups_is_left_out() -> None:
    assert out_of_reach(tiny("deepseek_v4"), "all-linear") == ["o_a_proj"]


def test_named_targets_without_effect_are_refused() -> None:
    assert out_of_reach(tiny("mamba2"), ["in_proj"]) == []
    assert out_of_reach(tiny("llama"), ["q_proj", "out_proj"]) == []
    with pytest.raises(BadInput, match=r"LoRA cannot adapt out_proj of a bamba model"):
        out_of_reach(tiny("bamba"), ["q_proj", "mamba.out_proj"])
