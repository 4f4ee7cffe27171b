"""Sums of each part, and the metrics of a run from the sums of all its parts.

A resumed run therefore has the metrics of an uninterrupted one, without reading outputs again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuneyard.api.score import MetricName
from tuneyard.metrics import Interval, Totals, metric_named
from tuneyard.metrics.metric import added
from tuneyard.scoring.degenerate import ends_in_loop, is_empty
from tuneyard.scoring.latency import Latencies
from tuneyard.scoring.rows import ScoredRow

_ERRORS_KEPT = 20
_ADDED = ("rows", "errors", "empty", "looping", "cut_off", "input_tokens", "output_tokens", "evaluated_tokens", "reference_tokens", "flops")
_ADDED_LATER = (
    *("off_schema", "retried", "paid_input_tokens", "paid_output_tokens", "uncounted_answers"),
    *("embedded_tokens", "uncounted_embeddings", "unanswered"),
)


@dataclass(kw_only=True)
class Sums:
    """Sums over a set of rows. Rows without a reference, or with an error, are left out of metrics."""

    rows: int = 0
    errors: int = 0
    empty: int = 0
    """Outputs without a visible character."""
    looping: int = 0
    """Outputs that end in a loop (see `degenerate`), and thoughts without an answer that do."""
    cut_off: int = 0
    """Outputs that were cut at `maxTokens` or the engine's length."""
    off_schema: int = 0
    """Outputs that do not follow `generation.schema`."""
    unanswered: int = 0
    """Rows without an error in which `score.answer` finds no answer."""
    input_tokens: int = 0
    output_tokens: int = 0
    evaluated_tokens: int = 0
    """Tokens of prompts and references that the model has evaluated for likelihoods."""
    reference_tokens: int = 0
    retried: int = 0
    """Rows that a judge was asked about twice."""
    flops: float = 0.0
    """Model FLOPs, the numerator of MFU."""
    paid_input_tokens: int = 0
    paid_output_tokens: int = 0
    """Tokens for which an endpoint charges, rows with errors included."""
    uncounted_answers: int = 0
    """Answers of an endpoint without a count of tokens."""
    embedded_tokens: int = 0
    """Tokens for which an endpoint of embeddings charges."""
    uncounted_embeddings: int = 0
    """Its replies without a count of tokens."""
    metrics: dict[str, Totals] = field(default_factory=dict)
    """Metric -> its sums (see `tuneyard.metrics`)."""
    latencies: Latencies = field(default_factory=Latencies)
    reasons: Counter[str] = field(default_factory=Counter)
    """The most common errors, with their number of rows."""
    as_text: Counter[str] = field(default_factory=Counter)
    as_tokens: Counter[str] = field(default_factory=Counter)
    """Rows whose prompts spell a control token, by token, as in `data.control_tokens.Spelled`."""

    @classmethod
    def of(cls, rows: Sequence[ScoredRow], metrics: Sequence[MetricName]) -> Sums:
        """The sums of scored rows. `metrics`: the metrics to sum up; their values per row are kept in the rows."""
        sums = cls()
        for row in rows:
            sums._add_row(row)
        measured = [row for row in rows if row.error is None]
        sums.metrics = {name: metric_named(name).totals(measured) for name in metrics}
        return sums

    def _add_row(self, row: ScoredRow) -> None:
        self.rows += 1
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.evaluated_tokens += row.evaluated_tokens
        if row.error is not None:
            self.errors += 1
            self.reasons[row.error] += 1
        if row.output is not None:
            self.empty += is_empty(row.output)
            self.looping += ends_in_loop(row.output or row.reasoning or "")
        self.cut_off += row.finish_reason == "length"
        self.unanswered += row.error is None and not row.answered
        self.off_schema += row.follows_schema is False
        self.paid_input_tokens += row.paid.input_tokens
        self.paid_output_tokens += row.paid.output_tokens
        self.uncounted_answers += row.paid.unknown
        self.embedded_tokens += row.embedded.input_tokens
        self.uncounted_embeddings += row.embedded.unknown
        self.retried += row.retried
        self.as_text.update(row.spelled.as_text)
        self.as_tokens.update(row.spelled.as_tokens)
        if row.latency_s is not None:
            self.latencies.add(row.latency_s)
        if row.nll is not None:
            self.reference_tokens += row.reference_tokens

    def add(self, other: Sums) -> None:
        """Add the sums of other rows."""
        for name in (*_ADDED, *_ADDED_LATER):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.metrics = {name: added(self.metrics.get(name, {}), other.metrics.get(name, {})) for name in {**self.metrics, **other.metrics}}
        self.latencies.add_all(other.latencies)
        self.as_text.update(other.as_text)
        self.as_tokens.update(other.as_tokens)
        self.reasons = Counter(dict((self.reasons + other.reasons).most_common(_ERRORS_KEPT)))

    def figures(self, names: Sequence[MetricName]) -> dict[str, float]:
        """Figure -> value, for the given metrics. A metric without rows is left out."""
        return {
            figure.name: value for name in names for figure, value, _ in metric_named(name).known(self.metrics.get(name, {}), self.rows)
        }

    def intervals(self, names: Sequence[MetricName]) -> dict[str, Interval]:
        """Figure -> 95 % confidence interval, for figures that have one."""
        known = (found for name in names for found in metric_named(name).known(self.metrics.get(name, {}), self.rows))
        return {figure.name: interval for figure, _, interval in known if interval is not None}

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON values."""
        counts = {"reasons": dict(self.reasons.most_common(_ERRORS_KEPT)), "as_text": dict(self.as_text), "as_tokens": dict(self.as_tokens)}
        return asdict(self) | {"latencies": self.latencies.to_dict(), **counts}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sums:
        """Raises KeyError for sums of an older version."""
        return cls(
            **{
                **values,
                "metrics": values["metrics"],
                "latencies": Latencies.from_dict(values["latencies"]),
                **{name: Counter(values.get(name, {})) for name in ("reasons", "as_text", "as_tokens")},
            }
        )
