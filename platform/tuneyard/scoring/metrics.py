"""Sums that parts keep, and the metrics of a run from the sums of all its parts.

So a resumed run has the metrics of an uninterrupted one, and no output is read twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuneyard.api.score import MetricName
from tuneyard.scoring.latency import Latencies
from tuneyard.scoring.rows import ScoredRow
from tuneyard.scoring.text_metrics import BleuCounts

_ERRORS_KEPT = 20


@dataclass
class Mean:
    total: float = 0.0
    rows: int = 0

    def add(self, total: float, rows: int = 1) -> None:
        self.total += total
        self.rows += rows

    @property
    def value(self) -> float:
        return self.total / self.rows if self.rows else math.nan


@dataclass(kw_only=True)
class Sums:
    """Of some rows. Rows without a reference, or with an error, are in no metric."""

    rows: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    evaluated_tokens: int = 0
    """Tokens of prompts and references that were run through the model for their likelihood."""
    nll: float = 0.0
    reference_tokens: int = 0
    flops: float = 0.0
    """Model FLOPs: what the maths needs, by which MFU is computed."""
    exact_match: Mean = field(default_factory=Mean)
    rouge_l: Mean = field(default_factory=Mean)
    bleu: BleuCounts = field(default_factory=BleuCounts)
    latencies: Latencies = field(default_factory=Latencies)
    reasons: Counter[str] = field(default_factory=Counter)
    """The commonest errors, with how many rows have them."""

    @classmethod
    def of(cls, rows: Sequence[ScoredRow], metrics: Sequence[MetricName]) -> Sums:
        """The sums of scored rows. `metrics` says which are kept; per-row values are the rows' own."""
        sums = cls()
        for row in rows:
            sums._add_row(row)
        if "bleu" in metrics:
            pairs = [(row.output, row.reference) for row in rows if row.output is not None and row.reference is not None]
            sums.bleu = BleuCounts.of([output for output, _ in pairs], [reference for _, reference in pairs])
        return sums

    def _add_row(self, row: ScoredRow) -> None:
        self.rows += 1
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.evaluated_tokens += row.evaluated_tokens
        if row.error is not None:
            self.errors += 1
            self.reasons[row.error] += 1
        if row.latency_s is not None:
            self.latencies.add(row.latency_s)
        if row.exact_match is not None:
            self.exact_match.add(row.exact_match)
        if row.rouge_l is not None:
            self.rouge_l.add(row.rouge_l)
        if row.nll is not None:
            self.nll += row.nll
            self.reference_tokens += row.reference_tokens

    def add(self, other: Sums) -> None:
        """Take in the sums of other rows."""
        for name in ("rows", "errors", "input_tokens", "output_tokens", "evaluated_tokens", "nll", "reference_tokens", "flops"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.exact_match.add(other.exact_match.total, other.exact_match.rows)
        self.rouge_l.add(other.rouge_l.total, other.rouge_l.rows)
        self.bleu += other.bleu
        self.latencies.add_all(other.latencies)
        self.reasons = Counter(dict((self.reasons + other.reasons).most_common(_ERRORS_KEPT)))

    def metrics(self, names: Sequence[MetricName]) -> dict[str, float]:
        """Metric -> value, for those asked for; perplexity brings `loss` with it. A metric that no row has is left out."""
        found: dict[str, float] = {}
        for name in names:
            if name == "perplexity" and self.reference_tokens:
                found["loss"] = self.nll / self.reference_tokens
                found["perplexity"] = math.exp(min(found["loss"], 700.0))
            elif name == "bleu" and self.bleu.reference_words:
                found["bleu"] = self.bleu.score()
            elif name == "exact_match" and self.exact_match.rows:
                found["exact_match"] = self.exact_match.value
            elif name == "rouge_l" and self.rouge_l.rows:
                found["rouge_l"] = self.rouge_l.value
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self) | {"latencies": self.latencies.to_dict(), "reasons": dict(self.reasons.most_common(_ERRORS_KEPT))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sums:
        bleu = values["bleu"]
        return cls(
            **{
                **values,
                "exact_match": Mean(**values["exact_match"]),
                "rouge_l": Mean(**values["rouge_l"]),
                "bleu": BleuCounts(tuple(bleu["matches"]), tuple(bleu["totals"]), bleu["output_words"], bleu["reference_words"]),
                "latencies": Latencies.from_dict(values["latencies"]),
                "reasons": Counter(values["reasons"]),
            }
        )
