"""LoRA beside weights that a layer reads past the module: left out, or refused where they are named."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text
from tests.zoo.configs import tiny_config_of
from transformers import AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.training import TrainResult, train
from tuneyard.training.adapter_reach import out_of_reach, refuse_lost_weights, refuse_shared_weights

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
    "falcon",
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


def test_an_adapter_that_would_not_be_found_again_is_refused() -> None:
    """PEFT reads the dots of Laguna's `mlp.shared_expert.` as any character."""
    from peft import LoraConfig, get_peft_model

    def adapted(targets: str | list[str], left_out: list[str]) -> Any:
        model = AutoModelForCausalLM.from_config(tiny_config_of("laguna"))
        return get_peft_model(model, LoraConfig(target_modules=targets, exclude_modules=left_out or None))

    refuse_lost_weights(adapted("all-linear", out_of_reach(tiny("laguna"), "all-linear")))
    with pytest.raises(BadInput, match=r"PEFT would not find the adapter of mlp.shared_experts.down_proj"):
        refuse_lost_weights(adapted(["q_proj", "down_proj"], []))


def test_adapters_on_weights_that_layers_share_are_not_merged() -> None:
    from peft import LoraConfig, get_peft_model

    for kind, shares in (("llama", False), ("gpt2", False), ("deepseek_v32", False), ("mixtral", False), ("zamba", True)):
        model = AutoModelForCausalLM.from_config(tiny_config_of(kind))
        adapted = get_peft_model(model, LoraConfig(target_modules="all-linear"))
        if shares:
            with pytest.raises(BadInput, match="layers of this model share weights"):
                refuse_shared_weights(adapted)
        else:
            refuse_shared_weights(adapted)


def test_an_adapter_of_a_tied_head_is_not_merged(tmp_path: Path) -> None:
    """The embedding would change with it. The adapter alone, and a head that is trained whole, work."""
    model, text = write_model(tmp_path / "model", tie_word_embeddings=True), write_text(tmp_path / "text.jsonl")

    def trained(name: str, start: Path = model, **method: Any) -> TrainResult:
        return train(train_request(tmp_path / name, train_task(start, text, steps=2, method=method), cpu_plan()))

    with pytest.raises(BadInput, match="the adapter of the head cannot be merged: this model ties the head to its embedding"):
        trained("merged", lora={"targets": ["q_proj", "lm_head"], "merge": True})
    assert trained("adapter", lora={"targets": ["q_proj", "lm_head"]}).adapter_uri
    whole = trained("whole", lora={"targets": ["q_proj"], "saveModules": ["lm_head"], "merge": True})
    assert whole.merged_uri


def test_named_targets_without_effect_are_refused() -> None:
    assert out_of_reach(tiny("mamba2"), ["in_proj"]) == []
    assert out_of_reach(tiny("llama"), ["q_proj", "out_proj"]) == []
    with pytest.raises(BadInput, match=r"LoRA cannot adapt out_proj of a bamba model"):
        out_of_reach(tiny("bamba"), ["q_proj", "mamba.out_proj"])


def test_a_continued_adapter_on_the_head_is_refused_beside_liger(tmp_path: Path) -> None:
    """The task names no targets, and the adapter that it continues has factors of the head."""
    model = write_model(tmp_path / "model")
    peft = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=4, target_modules=["q_proj", "lm_head"]))
    peft.save_pretrained(tmp_path / "adapter")
    task = train_task(model, write_text(tmp_path / "texts.jsonl"), method={"lora": {"rank": 4}})
    request = train_request(tmp_path, task, cpu_plan(liger=True), refused=None, adapter_uri=str(tmp_path / "adapter"))
    with pytest.raises(BadInput, match=r"(?s)adapts lm_head, which Liger's fused loss would not train.*set strategy\.liger to false"):
        train(request)
