"""The same task gives the same losses and the same weights, however it is laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks

from tuneyard.training import TrainRequest, TrainResult, train

LAYOUTS: dict[str, dict[str, Any]] = {
    "ZeRO 0": {"zero": 0},
    "ZeRO 1": {"zero": 1},
    "ZeRO 2": {"zero": 2},
    "ZeRO 3": {"zero": 3},
    "ZeRO 3, optimizer on cpu": {"zero": 3, "offload_optimizer": "cpu"},
    "ZeRO 3, optimizer and parameters on cpu": {"zero": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"},
}
TOLERANCE = 1e-3


def request_of(folder: Path, material: Material, **layout: Any) -> TrainRequest:
    data = {"source": str(material.text), "maxLength": 64, "validationFraction": 0.2}
    return train_request(folder, train_task(material.model, material.text, data=data), cpu_plan(**layout))


@pytest.fixture(scope="module")
def alone(material: Material, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """One process, without DeepSpeed: what all others must equal."""
    return train(request_of(tmp_path_factory.mktemp("alone"), material))


@pytest.fixture(scope="module")
def two_workers(material: Material, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    folder = tmp_path_factory.mktemp("two")
    requests = [request_of(folder / f"{i}", material, workers=2, **layout) for i, layout in enumerate(LAYOUTS.values())]
    return dict(zip(LAYOUTS, results_in_ranks(requests, workers=2), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_workers_give_the_losses_of_one(layout: str, alone: TrainResult, two_workers: dict[str, TrainResult]) -> None:
    result = two_workers[layout]

    assert result.world_size == 2
    assert len(result.peak_memory_gb) == 2
    assert result.losses == pytest.approx(alone.losses, rel=TOLERANCE)
    assert [loss for _, loss in result.eval_losses] == pytest.approx([loss for _, loss in alone.eval_losses], rel=TOLERANCE)
    assert result.tokens == alone.tokens


@pytest.mark.parametrize("layout", LAYOUTS)
def test_final_weights_are_whole_and_the_same(layout: str, alone: TrainResult, two_workers: dict[str, TrainResult]) -> None:
    from transformers import AutoModelForCausalLM

    expected = AutoModelForCausalLM.from_pretrained(alone.model_uri).state_dict()
    found = AutoModelForCausalLM.from_pretrained(two_workers[layout].model_uri).state_dict()

    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape
        assert found[name].sub(tensor).abs().max() < 1e-4, name


@pytest.mark.long
def test_four_workers_give_the_losses_of_one(material: Material, alone: TrainResult, tmp_path: Path) -> None:
    """The short test has two workers, in all stages."""
    requests = [request_of(tmp_path / f"{zero}", material, workers=4, zero=zero) for zero in (0, 3)]

    plain, sharded = results_in_ranks(requests, workers=4)

    assert plain.losses == pytest.approx(alone.losses, rel=TOLERANCE)
    assert sharded.losses == pytest.approx(alone.losses, rel=TOLERANCE)


def test_accumulating_gradients_weighs_tokens_not_micro_batches(material: Material, alone: TrainResult, tmp_path: Path) -> None:
    at_once = train(request_of(tmp_path, material, micro_batch=8, grad_accum=1))

    assert at_once.losses == pytest.approx(alone.losses, rel=TOLERANCE)
