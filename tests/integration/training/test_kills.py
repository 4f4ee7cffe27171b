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
MESHES: list[dict[str, Any]] = [
    {"workers": 2, "tensor_parallel": 2, "zero": 1, "grad_accum": 4},
    {"workers": 4, "tensor_parallel": 2, "zero": 2, "grad_accum": 2},
    {"workers": 1, "zero": 0},
]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("plan", "task", "on_s3"),
    [
        ({"workers": 2, "zero": 2}, {}, False),
        ({"workers": 2, "tensor_parallel": 2, "zero": 1, "grad_accum": 4}, {"method": {"lora": {"rank": 8, "dropout": 0.1}}}, False),
        ({"zero": 3}, {"method": {"lora": {"rank": 8, "dropout": 0.1}}}, False),
        ({"zero": 0}, {}, True),
    ],
    ids=["two workers, ZeRO 2", "tensor parallel, lora with dropout", "ZeRO 3, lora with dropout", "S3 that goes away"],
)
def test_killed_runs_end_like_runs_left_alone(plan: dict[str, Any], task: dict[str, Any], on_s3: bool, kills: int, tmp_path: Path) -> None:
    case = Case(folder=str(tmp_path), plan=plan, task=task, shape=SHAPE, kills=kills, seed=3, steps=24, on_s3=on_s3, outages=on_s3)

    outcome = run_case(case)

    assert outcome.kills == kills
    assert outcome.attempts == kills + outcome.runs
    assert outcome.exact


def test_a_run_that_is_killed_goes_on_on_another_mesh(tmp_path: Path) -> None:
    case = Case(folder=str(tmp_path), plan=MESHES[-1], layouts=MESHES, shape=SHAPE, kills=2, seed=5, steps=16)

    outcome = run_case(case)

    assert outcome.kills == 2
    assert outcome.difference < 1e-3
