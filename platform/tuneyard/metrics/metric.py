"""What a metric is: the sums that each part of the output keeps, and the figures that follow from the sums of all parts.

A part is scored on one machine and committed once. Sums that add up make the figures of a run independent of how its rows were cut into
parts, and of how often it was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Need = Literal["output", "reference", "likelihood"]
"""Of a row: what the model wrote, the expected answers, the likelihood that the model gives the one expected answer."""
Totals = dict[str, float]
"""Sums over rows, by name: JSON, and those of two parts add up name by name."""
Interval = tuple[float, float]
"""Lower and upper bound, at 95 % confidence."""


class Row(Protocol):
    """A row without an error, as metrics see it."""

    output: str | None
    references: tuple[str, ...]
    nll: float | None
    """Negative log-likelihood of the tokens of the reference together, in nats."""
    reference_tokens: int
    values: dict[str, float]
    """Metric -> value of this row, for metrics that have one."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number that a metric says of the whole task."""

    name: str
    """In metrics.json, in the report and in `status`."""
    title: str
    """For people: the heading of a table's row."""
    description: str
    higher_is_better: bool
    value: Callable[[Totals], float]
    interval: Callable[[Totals], Interval | None] = lambda _: None
    """None: too few rows, or not known."""
    format: str = ""
    """A format specification of Python's; default: four digits, and whole numbers from 10,000 on."""

    def text(self, value: float | None) -> str:
        """For people; a dash for no value."""
        if value is None or not math.isfinite(value):
            return "–"
        return format(value, self.format or (",.0f" if abs(value) >= 9999.5 else ".4g"))


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A name that `score.metrics` may hold."""

    name: str
    """Lower-case words joined by `_`; no column of the output has it."""
    description: str
    needs: frozenset[Need]
    count: Callable[[Sequence[Row]], Totals]
    """The sums of rows that have all `needs`; `rows`, their number, is one of the sums."""
    figures: tuple[Figure, ...]
    per_row: Callable[[Row], float] | None = None
    """Value of one row, a column of the output; None: the metric says nothing of single rows."""

    def takes(self, row: Row) -> bool:
        """Whether the row has what the metric needs."""
        has = {"output": row.output is not None, "reference": bool(row.references), "likelihood": row.nll is not None}
        return all(has[need] for need in self.needs)

    def measure(self, row: Row) -> None:
        """Note the value of a row that has what the metric needs. Raises ValueError where it cannot be computed, or is not finite."""
        if self.per_row is None or not self.takes(row):
            return
        try:
            value = float(self.per_row(row))
        except Exception as error:
            raise ValueError(f"{self.name} cannot be computed: {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise ValueError(f"{self.name} cannot be computed: it is {value}")
        row.values[self.name] = value

    def totals(self, rows: Iterable[Row]) -> Totals:
        """The sums of those of `rows` that have what the metric needs; all zero, or none, of no rows."""
        return self.count([row for row in rows if self.takes(row)])

    def known(self, totals: Mapping[str, float]) -> Iterator[tuple[Figure, float, Interval | None]]:
        """Figures, their values and intervals; nothing for sums of no rows."""
        sums = dict(totals)
        if sums.get("rows"):
            for figure in self.figures:
                yield figure, figure.value(sums), figure.interval(sums)


def added(first: Mapping[str, float], second: Mapping[str, float]) -> Totals:
    """The sums of two parts together."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def needing(need: Need, metrics: Iterable[Metric]) -> list[str]:
    """Names of the metrics that need something of a row."""
    return [metric.name for metric in metrics if need in metric.needs]
