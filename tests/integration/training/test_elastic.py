"""A run goes on with another number of workers, another ZeRO stage, with offload and without: the losses are those of a run left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import committed, stop_after
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks

from tuneyard.api import BadInput
from tuneyard.training import TrainRequest, train

pytestmark = pytest.mark.timeout(1800)

EVERY, STEPS = 1, 6
"""The state of the optimizer shows in the second step after a resume."""
METHODS: dict[str, dict[str, Any]] = {"full": {}, "lora": {"method": {"lora": {"rank": 4}}}}


def request_of(folder: Path, material: Material, task: dict[str, Any], **plan: Any) -> TrainRequest:
    fields = {"checkpoint": {"everySteps": EVERY, "keep": 9}, "batch": {"global": 12}, "steps": STEPS, **task}
    return train_request(folder, train_task(material.model, material.text, **fields), cpu_plan(**plan))


LEGS: list[dict[str, Any]] = [
    {"workers": 1, "micro_batch": 4, "grad_accum": 3, "zero": 0},
    {"workers": 2, "micro_batch": 2, "grad_accum": 3, "zero": 2},
    {"workers": 3, "micro_batch": 2, "grad_accum": 2, "zero": 1},
    {"workers": 2, "micro_batch": 3, "grad_accum": 2, "zero": 3, "offload_optimizer": "cpu"},
    {"workers": 1, "micro_batch": 4, "grad_accum": 3, "zero": 3, "offload_parameters": "cpu"},
]
FOUR: dict[str, Any] = {"workers": 4, "micro_batch": 3, "grad_accum": 1, "zero": 3, "offload_optimizer": "cpu"}


@pytest.mark.parametrize(
    "legs",
    [
        pytest.param(LEGS, id="1, 2, 3, 2, 1 workers"),
        pytest.param([*LEGS[:3], FOUR, LEGS[4]], id="1, 2, 3, 4, 1 workers", marks=pytest.mark.long),
    ],
)
def test_one_run_over_changing_workers_and_all_stages(legs: list[dict[str, Any]], material: Material, tmp_path: Path) -> None:
    """The long one has four workers, whose stage and offload the short one has on two."""
    whole = {name: train(request_of(tmp_path / f"{name}-whole", material, task, **legs[0])) for name, task in METHODS.items()}
    for name in METHODS:
        shutil.copytree(tmp_path / f"{name}-whole", tmp_path / name)

    for number, leg in enumerate(legs[1:], start=1):
        for name in METHODS:
            stop_after(EVERY * number, tmp_path / name / "out")
        requests = [request_of(tmp_path / name, material, task, **leg) for name, task in METHODS.items()]
        results = results_in_ranks(requests, workers=leg["workers"])
        for name, result in zip(METHODS, results, strict=True):
            assert result.resumed_from == EVERY * number, (name, leg)
            assert result.losses == pytest.approx(whole[name].losses, rel=1e-3), (name, leg)
            assert result.tokens == whole[name].tokens
            assert committed(tmp_path / name / "out") == [1, 2, 3, 4, 5, 6]


def test_an_adapter_on_4_bit_weights_goes_on_under_another_stage(material: Material, tmp_path: Path) -> None:
    task = {"method": {"qlora": {"rank": 4}}}
    layouts: list[dict[str, Any]] = [{**LEGS[0], "zero": zero} for zero in (0, 2, 1)]
    whole = train(request_of(tmp_path / "whole", material, task, **layouts[0]))
    shutil.copytree(tmp_path / "whole", tmp_path / "moved")

    for number, layout in enumerate(layouts[1:], start=1):
        stop_after(EVERY * number, tmp_path / "moved" / "out")
        moved = train(request_of(tmp_path / "moved", material, task, **layout))
        assert moved.resumed_from == EVERY * number
        assert moved.losses == pytest.approx(whole.losses, rel=1e-3)


def test_what_the_state_cannot_be_cut_for_is_refused(material: Material, tmp_path: Path) -> None:
    task = {"optimizer": {"name": "adafactor", "learningRate": 1e-3}}
    first = request_of(tmp_path, material, task, **LEGS[0])
    whole = train(first)
    stop_after(3, tmp_path / "out")

    again = train(first)

    assert again.resumed_from == 3
    assert again.losses == whole.losses
    stop_after(3, tmp_path / "out")
    with pytest.raises(BadInput, match=r"optimizer\.name changes from adafactor to adamw"):
        train(request_of(tmp_path, material, {}, **LEGS[0]))
