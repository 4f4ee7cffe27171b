"""SIGKILL at random instants of training and of saves: the run resumes every time, and its losses are those of one left alone, bit for bit.

The whole matrix is `benchmarks/checkpoint_kills.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ranks.kills import Case, run_case

pytestmark = pytest.mark.timeout(900)

SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
"""Whose saves last long enough to be killed in. Those of an adapter are short whatever the model."""
LORA = {"method": {"lora": {"rank": 8, "dropout": 0.5}}, "optimizer": {"learningRate": 1e-2}}
MESHES: list[dict[str, Any]] = [
    {"workers": 2, "tensor_parallel": 2, "zero": 1, "micro_batch": 4, "grad_accum": 2},
    {"workers": 2, "zero": 2, "micro_batch": 4, "grad_accum": 1},
    {"workers": 1, "zero": 0, "micro_batch": 4, "grad_accum": 2},
]
FOUR_RANKS: list[dict[str, Any]] = [MESHES[0], {"workers": 4, "tensor_parallel": 2, "zero": 2, "grad_accum": 2}, MESHES[2]]


@pytest.mark.parametrize(("kills", "steps"), [(2, 12), pytest.param(6, 24, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("plan", "task", "on_s3"),
    [
        pytest.param({"workers": 2, "zero": 2}, {}, False, id="two workers, ZeRO 2", marks=pytest.mark.long),
        pytest.param(MESHES[0], LORA, False, id="tensor parallel, lora"),
        pytest.param({"zero": 3, "micro_batch": 4, "grad_accum": 2}, LORA, False, id="ZeRO 3, lora"),
        pytest.param({"zero": 0}, {}, True, id="S3 that goes away"),
    ],
)
def test_killed_runs_end_like_runs_left_alone(
    plan: dict[str, Any], task: dict[str, Any], on_s3: bool, kills: int, steps: int, tmp_path: Path
) -> None:
    """An attempt is killed after four steps at most, so that two kills fall into 12 steps. In `make test`, full training on two workers is
    killed in test_mixtures.py, and ZeRO 2 in test_preferences.py."""
    shape = {} if task is LORA else SHAPE
    case = Case(folder=str(tmp_path), plan=plan, task=task, shape=shape, kills=kills, seed=3, steps=steps, on_s3=on_s3, outages=on_s3)

    outcome = run_case(case)

    assert outcome.kills == kills
    assert outcome.attempts == kills + outcome.runs
    assert on_s3 or any(outcome.resumed_from)
    assert outcome.exact


@pytest.mark.parametrize("meshes", [MESHES, pytest.param(FOUR_RANKS, marks=pytest.mark.long)], ids=["two ranks", "four ranks"])
def test_a_run_that_is_killed_goes_on_on_another_mesh(meshes: list[dict[str, Any]], tmp_path: Path) -> None:
    """The long case resumes on a mesh of 2 x 2."""
    case = Case(folder=str(tmp_path), plan=meshes[-1], layouts=meshes, shape=SHAPE, kills=2, seed=5, steps=12)

    outcome = run_case(case)

    assert outcome.kills == 2
    assert outcome.difference < 1e-3
