"""The table of score tasks side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.tracking.report_parts.figures import comparisons_of

TASKS = {name: {"metrics": {"exact_match": value}} for name, value in (("base", 0.5), ("tuned", 0.48))}


def paired(*, real: bool | None) -> list[dict[str, Any]]:
    return [{"task": "tuned", "against": "base", "figures": [{"figure": "exact_match", "real": real, "better": False}]}]


@pytest.mark.parametrize(("real", "verdict"), [(False, "no real difference"), (None, "too few rows"), (True, "worse")])
def test_the_comparison_of_rows_says_whether_a_difference_is_one(real: bool | None, verdict: str) -> None:
    ((row,),) = (table.rows for table in comparisons_of(None, TASKS, paired(real=real)))
    assert (row.change, row.verdict) == ("−0.0200", verdict)
    assert (row.better is False) == (real is True)


def test_without_a_comparison_of_rows_the_figures_say_it() -> None:
    ((row,),) = (table.rows for table in comparisons_of(None, TASKS))
    assert (row.verdict, row.better) == ("worse", False)


def test_an_own_metric_has_the_direction_that_its_name_gives() -> None:
    spec = {"spec": {"tasks": [{"name": name, "score": {"ownMetrics": ["mine:rate:lower"]}} for name in ("base", "tuned")]}}
    tasks = {name: {"metrics": {"rate": value}} for name, value in (("base", 0.5), ("tuned", 0.48))}
    ((row,),) = (table.rows for table in comparisons_of(spec, tasks))
    assert (row.verdict, row.better) == ("better", True)
