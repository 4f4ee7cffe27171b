"""The mean score of a judge, with the share of rows that it judged."""

from __future__ import annotations

from dataclasses import replace

from tuneyard.metrics.aggregates import mean
from tuneyard.metrics.metric import Figure, Metric, Row

JUDGED = Figure(
    name="judged",
    title="share of rows judged",
    description="rows that the judge gave a score or a verdict, of all rows",
    higher_is_better=True,
    value=lambda sums: sums["rows"] / sums["all_rows"],
    of_all_rows=True,
)


def judge_mean() -> Metric:
    """Every score task with `judge` has it."""
    metric = mean(
        "judge",
        title="judge's score",
        description="mean score of a judge over the rows that it gave one; every score task with `judge` has it",
        needs=("verdict",),
        per_row=_verdict,
    )
    return replace(metric, figures=(*metric.figures, JUDGED))


def _verdict(row: Row) -> float:
    assert row.verdict is not None
    return row.verdict
