"""Metrics that a user's own function computes, as score tasks name them: `module:function`, or `module:function:lower`.

A name holds all that adding up and comparing need, so that only engines' processes load the function (see `scoring.own_metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tuneyard.metrics.aggregates import mean, mean_interval, share_interval
from tuneyard.metrics.metric import Figure, Interval, Metric, Row, Totals
from tuneyard.metrics.table import METRICS

_LOWER = "lower"


class Truth(float):
    """The value 0 or 1 of a row, which a function returned as a truth value."""


def metric_named(name: str) -> Metric:
    """The metric of the table, or the user's own one, with this name."""
    return METRICS[name] if name in METRICS else _own(name)


def program_of(name: str) -> str:
    """`my_metrics:rate` of `my_metrics:rate:lower`."""
    module, function, *_ = name.split(":")
    return f"{module}:{function}"


def column_of(name: str) -> str:
    """The name of an own metric's column and figure: that of its function."""
    return name.split(":")[1]


def own_figures(names: Iterable[str]) -> Mapping[str, Figure]:
    """The figures of own metrics by name. Names that are none are left out."""
    return {column_of(name): _own(name).figures[0] for name in names if name.count(":") in (1, 2)}


@cache
def _own(name: str) -> Metric:
    column = column_of(name)
    metric = mean(
        column,
        title=column,
        description=f"mean of {program_of(name)}, your own function",
        needs=("output",),
        per_row=_computed,
        higher_is_better=not name.endswith(f":{_LOWER}"),
    )

    def count(rows: Sequence[Row]) -> Totals:
        return {**metric.count(rows), "truths": sum(isinstance(row.values.get(column), Truth) for row in rows)}

    return replace(metric, count=count, figures=(replace(metric.figures[0], interval=_interval),))


def _interval(sums: Totals) -> Interval | None:
    """Wilson's where all values are truth values. Sums of an older version do not tell."""
    return share_interval(sums) if sums.get("truths") == sums["rows"] else mean_interval(sums)


def _computed(_: Row) -> float:
    raise NotImplementedError("engines' processes compute the user's own metrics by `scoring.own_metrics`")
