"""Metrics: sums for each part of the output, and figures from the sums of all parts.

A part is scored on one machine and committed once. Sums are additive, so that the figures of a run depend neither on the cut of its rows
into parts nor on its interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tuneyard.metrics.choices import Chosen
    from tuneyard.metrics.similarity import Similarity
    from tuneyard.metrics.ways import Ways
    from tuneyard.metrics.win_rate import Preference

Need = Literal["output", "reference", "likelihood", "verdict", "preference", "similarity", "choices", "samples"]
"""A part of a row: the output of the model, the expected answers, the model's likelihood of the one expected answer, the score or
preference that the model gives as a judge, the similarity of the embeddings of output and reference, the likelihoods of the choices, or
several outputs."""
Totals = dict[str, float]
"""Sums over rows, by name, as in JSON. Sums of two parts are added name by name."""
Interval = tuple[float, float]
"""Lower and upper bound, at 95 % confidence."""


class Row(Protocol):
    """A row without an error, as metrics see it. With `score.answer`, output, references and samples are the answers cut out of them."""

    output: str | None
    answered: bool
    """False: no answer could be cut out of the output. Metrics that compare with a reference then have the value `Metric.unanswered`."""
    samples: tuple[str | None, ...]
    """Outputs of several samples, the first one included; empty without `passAt`. None: a sample without an answer."""
    choices: Chosen | None
    """The likelihoods of the choices, and the right one."""
    ways: Ways
    """How values are computed."""
    references: tuple[str, ...]
    nll: float | None
    """Negative log-likelihood of all tokens of the reference, in nats."""
    reference_tokens: int
    verdict: float | None
    """The score of a judge."""
    preference: Preference | None
    """The verdicts of a judge on two answers."""
    similarity: Similarity | None
    """The cosine of the embeddings of output and reference."""
    values: dict[str, float]
    """Values of this row by metric, for metrics with a value per row."""
    sums: dict[str, Totals]
    """Sums of this row by metric, for metrics with `row_sums`."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of a metric for the whole task."""

    name: str
    """Its key in metrics.json, in the report and in `status`."""
    title: str
    """The heading of its table row, for people."""
    description: str
    higher_is_better: bool
    value: Callable[[Totals], float]
    interval: Callable[[Totals], Interval | None] = lambda _: None
    """None: too few rows, or unknown."""
    format: str = ""
    """A format specification of Python. Default: four digits, and whole numbers from 10,000 on."""
    of_all_rows: bool = False
    """Whether `value` also needs the sum `all_rows`, which counts rows with errors too. Models are not compared by such figures."""

    def text(self, value: float | None) -> str:
        """The value for people. A dash: no value."""
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
    """The sums over rows that have all `needs`. `rows`, their number, is one of the sums."""
    figures: tuple[Figure, ...]
    per_row: Callable[[Row], float] | None = None
    """The value of one row, a column of the output. None: the metric has no values of single rows."""
    row_sums: tuple[str, ...] = ()
    """Names of the sums that figures need, for a metric of outputs without `per_row`. The output keeps them for each row, in the column
    `sums_column`, so that two models can be compared row by row."""
    settings: tuple[str, ...] = ()
    """Fields of the score task that change its values. Tasks are compared by the metric if they have the same ones."""
    of_whole_output: bool = False
    """Whether it measures the whole output where `score.answer` cuts an answer out of it."""
    unanswered: float = 0.0
    """The value of a row whose answer could not be cut out, of a metric that compares outputs with references."""

    @property
    def sums_column(self) -> str | None:
        """The column of `row_sums`."""
        return f"{self.name}_sums" if self.row_sums else None

    def takes(self, row: Row) -> bool:
        """Whether the row has all `needs` of the metric."""
        has = {
            "output": row.output is not None,
            "reference": bool(row.references),
            "likelihood": row.nll is not None,
            "verdict": row.verdict is not None,
            "preference": row.preference is not None,
            "similarity": row.similarity is not None,
            "choices": row.choices is not None,
            "samples": bool(row.samples),
        }
        return all(has[need] for need in self.needs)

    def measure(self, row: Row) -> None:
        """Set the value of a row that has all `needs`. Raises ValueError where the value cannot be computed, or is not finite."""
        if not self.takes(row):
            return
        try:
            if self.row_sums:
                row.sums[self.name] = self.count([row])
            if self.per_row is None:
                return
            lacks = not row.answered and {"output", "reference"} <= self.needs
            value = self.unanswered if lacks else float(self.per_row(row))
        except Exception as error:
            raise ValueError(f"{self.name} cannot be computed: {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise ValueError(f"{self.name} cannot be computed: it is {value}")
        row.values[self.name] = value

    def totals(self, rows: Iterable[Row]) -> Totals:
        """The sums over all of `rows` that have all `needs`. Without such rows the sums are zero, or absent."""
        taken = [row for row in rows if self.takes(row)]
        measured = [row.sums[self.name] for row in taken if self.name in row.sums]
        return reduce(added, measured, self.count([row for row in taken if self.name not in row.sums]))

    def known(self, totals: Mapping[str, float], all_rows: int | None = None) -> Iterator[tuple[Figure, float, Interval | None]]:
        """Figures, their values and intervals. Empty for sums over no rows. `all_rows`: for figures of all rows, which are left out
        without it."""
        sums = dict(totals) if all_rows is None else {**totals, "all_rows": all_rows}
        if sums.get("rows"):
            for figure in self.figures:
                if not figure.of_all_rows or all_rows is not None:
                    yield figure, figure.value(sums), figure.interval(sums)


def added(first: Mapping[str, float], second: Mapping[str, float]) -> Totals:
    """The sums over two parts together."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def needing(need: Need, metrics: Iterable[Metric]) -> list[str]:
    """Names of the metrics that need a part of a row."""
    return [metric.name for metric in metrics if need in metric.needs]
