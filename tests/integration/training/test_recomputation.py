"""Recomputation changes no gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_tokenizer
from tests.integration.training.conftest import Material
from tests.zoo.configs import _fields
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from tuneyard.api import BadInput
from tuneyard.tracking.events import Step
from tuneyard.training import deepspeed_config, train


@pytest.fixture
def all_weights_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed keeps weights below 100,000 numbers whole on each rank: all weights of tiny models."""
    settings = deepspeed_config._zero

    def cut(*arguments: Any) -> dict[str, Any]:
        made = settings(*arguments)
        return {**made, **({"stage3_param_persistence_threshold": 0} if made["stage"] == 3 else {})}

    monkeypatch.setattr(deepspeed_config, "_zero", cut)


def norms(folder: Path, material: Material, model: Path, zero: int, recompute: bool) -> list[float]:
    told: list[Any] = []
    task = train_task(model, material.text, method={"lora": {"rank": 4}}, steps=2, batch={"global": 2}, optimizer={"learningRate": 1e-2})
    plan = cpu_plan(zero=zero, recompute=recompute, micro_batch=2, grad_accum=1)
    train(train_request(folder / f"{zero}-{recompute}", task, plan), emit=told.append)
    return [event.grad_norm for event in told if isinstance(event, Step)]


def config_of(kind: str) -> Any:
    """Twice the layers of a tiny model, the second half of which takes keys and values from the first, if the class has that."""
    fields = _fields(CONFIG_MAPPING[kind], kind)
    if "num_kv_shared_layers" in CONFIG_MAPPING[kind].__dataclass_fields__:
        kinds = fields["layer_types"]
        fields |= {"layer_types": kinds * 2, "num_hidden_layers": 2 * len(kinds), "num_kv_shared_layers": len(kinds)}
    return CONFIG_MAPPING[kind](**fields)


@pytest.mark.usefixtures("all_weights_cut")
@pytest.mark.parametrize("kind", ["qwen3_moe", "gemma4_text"])
def test_what_leaves_a_block_by_a_side_door_keeps_its_gradient(kind: str, material: Material, tmp_path: Path) -> None:
    """Router logits, for the router's loss; keys and values, for later layers."""
    model = tmp_path / kind
    AutoModelForCausalLM.from_config(config_of(kind)).save_pretrained(model)
    write_tokenizer(model)

    plain = norms(tmp_path, material, model, 0, recompute=False)

    assert norms(tmp_path, material, model, 3, recompute=True) == pytest.approx(plain, rel=1e-5)
    assert norms(tmp_path, material, model, 0, recompute=True) == pytest.approx(plain, rel=1e-6)


def test_a_block_that_computes_something_else_the_second_time_is_refused(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a block with a state of its own does. torch knows whether it is in a backward pass."""
    plain = LlamaMLP.forward

    def changing(self: Any, values: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = plain(self, 2 * values if torch._C._current_graph_task_id() >= 0 else values)
        return made

    monkeypatch.setattr(LlamaMLP, "forward", changing)
    task = train_task(material.model, material.text, method={"lora": {"rank": 4}}, steps=1)

    with pytest.raises(BadInput, match=r"recomputation changes the gradient of model\.layers.*\n.*set strategy\.recompute to false"):
        train(train_request(tmp_path, task, cpu_plan(recompute=True)))


def test_a_class_that_cannot_recompute_is_refused(material: Material, tmp_path: Path) -> None:
    model = tmp_path / "ctrl"
    AutoModelForCausalLM.from_config(config_of("ctrl")).save_pretrained(model)
    write_tokenizer(model)

    with pytest.raises(BadInput, match=r"CTRLLMHeadModel cannot recompute its layers\n.*set strategy\.recompute to false"):
        train(train_request(tmp_path, train_task(model, material.text, steps=1), cpu_plan(recompute=True, attention="eager")))
