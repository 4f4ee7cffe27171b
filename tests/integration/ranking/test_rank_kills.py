"""Rank tasks that are killed with SIGKILL at random instants end as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ranks.kills import Case, run_case

TASK: dict[str, Any] = {"batch": {"global": 240}}


HALF = {"tables": {"rows": "fp16"}}
TASKS: dict[str, dict[str, Any]] = {
    "fp32": TASK,
    "fp16 rows, streamed": TASK | HALF | {"streaming": True},
    "fp16 rows": TASK | HALF,
    "streamed": TASK | {"streaming": True},
}
SHORT = ("fp32", "fp16 rows, streamed")


@pytest.mark.parametrize(
    "task", [pytest.param(task, id=name, marks=[] if name in SHORT else pytest.mark.long) for name, task in TASKS.items()]
)
def test_losses_are_equal_bit_for_bit(task: dict[str, Any], tmp_path: Path) -> None:
    """Rows in fp16 and streamed rows are killed together in `make test`."""
    outcome = run_case(Case(folder=str(tmp_path), plan={"workers": 2}, task=task, ranker=True, kills=2, seed=5, steps=12))
    assert outcome.kills == 2
    assert outcome.exact, outcome.difference


@pytest.mark.long
def test_workers_that_change_from_attempt_to_attempt_change_losses_by_the_order_of_sums_alone(tmp_path: Path) -> None:
    layouts: list[dict[str, Any]] = [{"workers": workers} for workers in (1, 2, 4, 3)]
    outcome = run_case(Case(folder=str(tmp_path), plan={"workers": 1}, layouts=layouts, task=TASK, ranker=True, kills=4, seed=6))
    assert outcome.difference < 1e-3
