"""LoRA in a program's model: the same losses on any layout and after a stop, and weights under the names of the model at the end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.checkpoints import stop_after
from tests.builders.programs import line_request, write_program
from tests.ranks.groups import results_in_ranks
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training import TrainRequest, train

MODEL = "return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))"
LORA = {"lora": {"rank": 2, "targets": ["0"]}}
STEPS = {"steps": 6, "checkpoint": {"everySteps": 2}, "optimizer": {"learningRate": 0.05, "schedule": "constant", "warmup": 0}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_program(tmp_path_factory.mktemp("program"), model=MODEL)


def test_an_adapted_model_learns_alike_on_any_layout_and_is_saved_under_its_own_names(program: Path, tmp_path: Path) -> None:
    layouts: dict[str, dict[str, Any]] = {"plain": {}, "zero-2": {"zero": 2}, "zero-3": {"zero": 3}}

    def request(name: str, plan: dict[str, Any], **fields: Any) -> TrainRequest:
        return line_request(tmp_path / name, program, plan, **{"method": LORA, **STEPS, **fields})

    one = train(request("one", {"micro_batch": 8}))
    two = results_in_ranks([request(name, {"workers": 2, **plan}) for name, plan in layouts.items()], workers=2)
    shutil.copytree(tmp_path / "one", tmp_path / "stopped")
    stop_after(4, tmp_path / "stopped" / "out")
    resumed = train(request("stopped", {"micro_batch": 8}))
    on = train(request("on", {"micro_batch": 8}, model={"name": str(tmp_path / "one" / "out" / "model")}, method={"full": {}}))

    torch.manual_seed(42)
    start = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).state_dict()
    weights = load_file(tmp_path / "one" / "out" / "model" / "model.safetensors")
    assert sorted(weights) == sorted(start)
    assert [name for name in start if not torch.equal(weights[name], start[name])] == ["0.weight"]
    assert int(torch.linalg.matrix_rank((weights["0.weight"] - start["0.weight"]).double(), atol=1e-6)) == 2
    assert resumed.losses == one.losses
    assert on.losses[0] < one.losses[0]
    for name, result in zip(layouts, two, strict=True):
        assert result.losses == pytest.approx(one.losses, rel=1e-4), name
        for key, value in load_file(tmp_path / name / "out" / "model" / "model.safetensors").items():
            assert torch.allclose(value, weights[key], atol=1e-5), (name, key)


@pytest.mark.parametrize(
    ("model", "lora", "said"),
    [
        (MODEL, {"targets": ["fc1"]}, "the model of line:Line has no linears named fc1 for an adapter"),
        (MODEL, {"targets": "1"}, "has no linears named 1 for an adapter"),
        ("return nn.Sequential(nn.Conv1d(2, 1, 1))", {}, "the model of line:Line has no linears for an adapter"),
        ("made = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))\n        made[1].weight = made[0].weight\n        return made",
         {"targets": ["0"]}, "the weight of 0 is that of another module too"),
    ],
)  # fmt: skip
def test_an_adapter_that_has_no_place_is_refused(model: str, lora: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        train(line_request(tmp_path, write_program(tmp_path / "program", model=model), method={"lora": lora}))
    assert said in raised.value.cause
    assert raised.value.next_step
