"""Rows split over ranks: the loss and every gradient of one device, whatever the architecture, the layout and the data; or a refusal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import committed, stop_after
from tests.builders.models import cpu_plan, train_request, train_task, write_model
from tests.integration.training.conftest import Material
from tests.ranks.context_models import differences
from tests.ranks.groups import results_in_ranks, train_in_ranks
from tests.zoo.proofs import proven_once
from tests.zoo.traits import CONTEXT_PARALLEL, REFUSED_ON_SLICES

from tuneyard.api import BadInput
from tuneyard.training import TrainRequest, train

pytestmark = pytest.mark.timeout(900)

LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 1.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 64,
}


ARCHITECTURES = list(CONTEXT_PARALLEL.values())


@pytest.mark.parametrize(("architectures", "ranks", "packed"), [(ARCHITECTURES, 2, True), (ARCHITECTURES, 2, False), (["llama"], 4, False)])
@proven_once
def test_the_loss_and_every_gradient_are_those_of_one_device(architectures: list[str], ranks: int, packed: bool) -> None:
    """Rows of 29 tokens. On four ranks, two heads of keys."""
    unequal = [each for each in differences(architectures, ranks, packed=packed) if not each.equal]

    assert not unequal


@pytest.mark.long
def test_the_loss_and_every_gradient_of_all_models_on_four_ranks_are_those_of_one_device() -> None:
    """The short test has them on two ranks, and Llama on four."""
    unequal = [each for each in differences(ARCHITECTURES, 4, packed=False) if not each.equal]

    assert not unequal


@proven_once
def test_a_sliding_window_reaches_over_slices() -> None:
    [found] = differences(["mistral"], 2, packed=True, sliding_window=8)

    assert found.equal, found


@pytest.mark.parametrize("rope", [LONG_ROPE, {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}])
@proven_once
def test_frequencies_that_depend_on_the_longest_position_are_those_of_the_row(rope: dict[str, Any]) -> None:
    model_type = "phi3" if rope is LONG_ROPE else "llama"
    [found] = differences(
        [model_type], 2, packed=False, rope_parameters=rope, original_max_position_embeddings=64, max_position_embeddings=64
    )

    assert found.equal, found


@proven_once
def test_models_whose_tokens_meet_outside_of_attention_are_refused() -> None:
    found = {each.model_type: each.refused for each in differences(list(REFUSED_ON_SLICES), 2, packed=False)}

    assert {name: why in found[name] for name, why in REFUSED_ON_SLICES.items()} == dict.fromkeys(REFUSED_ON_SLICES, True), found


LAYOUTS: dict[str, dict[str, Any]] = {
    "1 x 2, ZeRO 2": {"workers": 2, "context_parallel": 2, "micro_batch": 4, "grad_accum": 2, "zero": 2, "recompute": True},
    "1 x 2, ZeRO 3": {"workers": 2, "context_parallel": 2, "micro_batch": 4, "grad_accum": 2, "zero": 3},
    "2 x 2": {"workers": 4, "context_parallel": 2, "grad_accum": 2},
    "2 x 2, ZeRO 2": {"workers": 4, "context_parallel": 2, "grad_accum": 2, "zero": 2, "recompute": True},
    "1 x 4, ZeRO 3": {"workers": 4, "context_parallel": 4, "grad_accum": 4, "zero": 3},
}
TASKS: dict[str, dict[str, Any]] = {
    "packed": {"data": {"maxLength": 61, "validationFraction": 0.2}},
    "padded": {"data": {"maxLength": 61, "pack": False, "validationFraction": 0.2}},
    "lora": {"data": {"maxLength": 61, "validationFraction": 0.2}, "method": {"lora": {"rank": 4}}},
}


def request_of(folder: Path, model: Path, text: Path, task: dict[str, Any], *, refused: bool = False, **plan: Any) -> TrainRequest:
    fields = {"steps": 8, **task, "data": {"source": str(text), **task.get("data", {})}}
    return train_request(folder, train_task(model, text, **fields), cpu_plan(**plan), refused=refused)


CASES = {"packed": "1 x 2, ZeRO 3", "padded": "2 x 2", "lora": "1 x 2, ZeRO 2"}
FOUR_RANKS = {"packed": "1 x 4, ZeRO 3", "padded": "2 x 2", "lora": "2 x 2, ZeRO 2"}


@pytest.mark.parametrize(
    ("cases", "steps"), [(CASES, 8), pytest.param(FOUR_RANKS, 20, marks=pytest.mark.long)], ids=["short", "four ranks"]
)
def test_steps_are_those_of_one_device(cases: dict[str, str], steps: int, material: Material, tmp_path: Path) -> None:
    """The long one: 20 steps, each on four ranks."""

    def request(folder: str, name: str, **plan: Any) -> TrainRequest:
        return request_of(tmp_path / folder, material.model, material.text, {**TASKS[name], "steps": steps}, **plan)

    alone = {name: train(request(f"{name}-alone", name)) for name in TASKS}
    found = {}
    for workers in (2, 4):
        names = [name for name, layout in cases.items() if LAYOUTS[layout]["workers"] == workers]
        results = results_in_ranks([request(name, name, **LAYOUTS[cases[name]]) for name in names], workers) if names else []
        found |= dict(zip(names, results, strict=True))

    for name, layout in cases.items():
        result = found[name]
        expected = alone[name]
        assert result.losses == pytest.approx(expected.losses, abs=1e-4), (name, layout)
        assert result.eval_losses[-1][1] == pytest.approx(expected.eval_losses[-1][1], abs=1e-4), (name, layout)
        assert result.tokens == expected.tokens, (name, layout)


def test_experts_are_balanced_over_whole_rows(material: Material, tmp_path: Path) -> None:
    """The loss that spreads tokens over experts is no mean over tokens; padding does not count in it."""
    model, task = write_model(tmp_path / "model", "mixtral"), {**TASKS["padded"], "steps": 4}
    alone = train(request_of(tmp_path / "alone", model, material.text, task))
    layout = {"workers": 2, "context_parallel": 2, "micro_batch": 4, "grad_accum": 2}
    request = request_of(tmp_path / "split", model, material.text, task, **layout)

    [split] = results_in_ranks([request], workers=2)

    assert split.losses == pytest.approx(alone.losses, abs=1e-4)
    assert split.details["router"]["losses"] == pytest.approx(alone.details["router"]["losses"], abs=1e-4)
    assert split.details["experts"]["busiest"] == pytest.approx(alone.details["experts"]["busiest"], abs=1e-3)


LEGS: list[dict[str, Any]] = [
    {"workers": 2, "context_parallel": 2, "micro_batch": 4, "grad_accum": 2, "zero": 2},
    {"workers": 2, "grad_accum": 2, "zero": 3},
]
FOUR_LEGS: list[dict[str, Any]] = [LEGS[0], {"workers": 4, "context_parallel": 2, "grad_accum": 2, "zero": 3}]


@pytest.mark.parametrize("legs", [LEGS, pytest.param(FOUR_LEGS, marks=pytest.mark.long)], ids=["two ranks", "four ranks"])
def test_a_run_goes_on_with_another_degree(legs: list[dict[str, Any]], material: Material, tmp_path: Path) -> None:
    """The long case resumes on a mesh of 2 x 2."""
    task = {"data": {"maxLength": 64}, "steps": 6, "checkpoint": {"everySteps": 2, "keep": 9}}
    whole = train(request_of(tmp_path / "whole", material.model, material.text, task))
    shutil.copytree(tmp_path / "whole", tmp_path / "moved")

    for number, leg in enumerate(legs, start=1):
        stop_after(2 * number, tmp_path / "moved" / "out")
        request = request_of(tmp_path / "moved", material.model, material.text, task, **leg)
        [result] = results_in_ranks([request], workers=leg["workers"])
        assert result.resumed_from == 2 * number
        assert result.losses == pytest.approx(whole.losses, rel=1e-3)
    assert committed(tmp_path / "moved" / "out") == [2, 4, 6]


def test_streamed_rows_are_split_too(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    task = {"data": {"maxLength": 64, "streaming": True, "workers": 0}, "steps": 6}
    alone = train(request_of(tmp_path / "alone", material.model, material.text, task))

    split = request_of(tmp_path / "split", material.model, material.text, task, workers=2, context_parallel=2, micro_batch=4, grad_accum=2)
    [result] = results_in_ranks([split], workers=2)

    assert result.losses == pytest.approx(alone.losses, abs=1e-4)


def test_heads_that_ranks_cannot_share_are_refused(material: Material, tmp_path: Path) -> None:
    request = request_of(tmp_path, material.model, material.text, {"steps": 2}, refused=True, workers=3, context_parallel=3, grad_accum=4)

    [refused] = train_in_ranks([request], workers=3)

    assert isinstance(refused, BadInput)
    assert "3 ranks cannot share 4 attention heads evenly" in refused.cause
    assert "one of 1, 2, 4" in refused.next_step
