"""The table of parts: every test file is in one, and their budgets keep to the sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.suite.parts import BUDGET_MIN, PARTS

ROOT = Path(__file__).parents[3]


def test_every_test_file_is_in_exactly_one_part() -> None:
    for file in (ROOT / "tests").rglob("test_*.py"):
        name = file.relative_to(ROOT)
        owners = [part.name for part in PARTS for path in part.paths if name.is_relative_to(path)]
        assert len(owners) == 1, f"{name} is in {owners or 'no part'}: put it into one of tests/suite/parts.py"


def test_every_path_of_a_part_exists() -> None:
    assert [path for part in PARTS for path in part.paths if not (ROOT / path).exists()] == []


def test_budgets_keep_to_their_sum() -> None:
    assert sum(part.budget_min for part in PARTS) <= BUDGET_MIN


@pytest.mark.parametrize("part", [part for part in PARTS if part.budget_min], ids=lambda part: part.name)
def test_the_table_of_budgets_is_the_one_people_read(part: object) -> None:
    assert f"| `{part.name}` | {part.budget_min:g} |" in (ROOT / "CONTRIBUTING.md").read_text()  # type: ignore[attr-defined]
