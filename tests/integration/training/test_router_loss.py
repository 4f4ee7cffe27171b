"""Mixtures of experts are trained with the loss that spreads tokens over experts, as much of it as TRL adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text
from tests.ranks.groups import results_in_ranks
from transformers import AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.tracking.events import Event, Step
from tuneyard.training import TrainRequest, TrainResult, train

PLAN = {"micro_batch": 2, "grad_accum": 4}
PLANS: dict[str, dict[str, Any]] = {"ZeRO 0": {"zero": 0}, "ZeRO 3": {"zero": 3}, "ZeRO 2, recomputed": {"zero": 2, "recompute": True}}


@pytest.fixture(scope="module", params=["mixtral", pytest.param("qwen3_moe", marks=pytest.mark.long)])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mixtral alone in `make test`, where test_losses_of_trl.py and test_expert_load.py have Qwen 3's experts."""
    return write_model(tmp_path_factory.mktemp("experts"), request.param)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.jsonl")


def request_of(folder: Path, model: Path, text: Path, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    data = {"source": str(text), "maxLength": 64, "shuffle": False}
    return train_request(folder, train_task(model, text, data=data, **task), cpu_plan(**(plan or PLAN)))


@pytest.fixture(scope="module")
def alone(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, list[Step], Path]:
    """One process with the weight that the model's configuration has; the events of its steps, and its folder."""
    folder, heard = tmp_path_factory.mktemp("alone"), list[Event]()
    result = train(request_of(folder, model, text), emit=heard.append)
    return result, [event for event in heard if isinstance(event, Step)], folder


@pytest.fixture(scope="module")
def together(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    """Two ranks, by plan."""
    folder = tmp_path_factory.mktemp("together")
    layouts = {name: {"micro_batch": 2, "grad_accum": 2, "workers": 2, **plan} for name, plan in PLANS.items()}
    requests = [request_of(folder / name, model, text, plan) for name, plan in layouts.items()]
    return dict(zip(layouts, results_in_ranks(requests, workers=2), strict=True))


def router_losses(result: TrainResult) -> list[float]:
    found: list[float] = result.details["router"]["losses"]
    return found


def test_a_weight_of_its_own_and_none(alone: tuple[TrainResult, list[Step], Path], model: Path, text: Path, tmp_path: Path) -> None:
    configured, _, folder = alone
    runs = {weight: train(request_of(tmp_path / str(weight), model, text, routerLoss=weight)) for weight in (0.5, 50.0, 0.0)}
    assert configured.losses == runs[0.5].losses
    assert runs[0.0].losses[0] == pytest.approx(runs[50.0].losses[0], rel=1e-5), "the loss that is told is without the router's"
    assert runs[0.0].losses[-1] != runs[50.0].losses[-1]
    assert "router" not in runs[0.0].details
    saved = json.loads((folder / "out" / "model" / "config.json").read_text())
    assert (saved["router_aux_loss_coef"], saved.get("output_router_logits", False)) == (0.5, False)


@pytest.mark.parametrize("plan", PLANS)
def test_ranks_and_stages_agree(plan: str, alone: tuple[TrainResult, list[Step], Path], together: dict[str, TrainResult]) -> None:
    one, two = alone[0], together[plan]
    assert two.losses == pytest.approx(one.losses, rel=1e-4)
    assert router_losses(two) == pytest.approx(router_losses(one), rel=1e-4)


@pytest.mark.parametrize("plan", PLANS)
def test_ranks_and_stages_have_the_same_load_of_experts(
    plan: str, alone: tuple[TrainResult, list[Step], Path], together: dict[str, TrainResult]
) -> None:
    one, experts, steps = alone[0], alone[0].details["experts"], alone[1]
    assert [step.busiest_expert for step in steps] == experts["busiest"]
    assert [step.router_loss for step in steps] == router_losses(one)
    assert together[plan].details["experts"]["busiest"] == pytest.approx(experts["busiest"], rel=0.02)
    assert [sum(row) for row in experts["load"]] == pytest.approx([4.0, 4.0], abs=0.01)
    assert np.array(together[plan].details["experts"]["load"]) == pytest.approx(np.array(experts["load"]), abs=0.03)


def test_tokens_are_spread(model: Path, text: Path, tmp_path: Path) -> None:
    """From a router that prefers some experts strongly."""
    uneven = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        for name, weights in uneven.named_parameters():
            if name.endswith("gate.weight"):
                weights *= 40
    uneven.save_pretrained(tmp_path / "uneven")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "uneven")

    last = {
        weight: router_losses(train(request_of(tmp_path / str(weight), tmp_path / "uneven", text, steps=12, routerLoss=weight)))[-1]
        for weight in (1e-6, 5.0)
    }

    assert last[5.0] < last[1e-6]


def test_an_adapter_learns_with_it_too(model: Path, text: Path, tmp_path: Path) -> None:
    whole = train(request_of(tmp_path / "whole", model, text, method={"lora": {"rank": 4}}, checkpoint={"everySteps": 3}))
    assert len(router_losses(whole)) == len(whole.losses) == 6


def test_asked_of_a_model_without_experts(text: Path, tmp_path: Path) -> None:
    llama = write_model(tmp_path / "llama")
    with pytest.raises(BadInput, match=r"routerLoss is 0\.1, and a llama model has no such loss"):
        train(request_of(tmp_path, llama, text, routerLoss=0.1))
    assert "router" not in train(request_of(tmp_path, llama, text, routerLoss=0)).details
