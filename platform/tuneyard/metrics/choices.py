"""Accuracy and calibration of a model that chooses by likelihood, as lm-evaluation-harness scores multiple choice.

The model gives each choice a log-likelihood, given the prompt; the likeliest one is its answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.metrics.aggregates import mean
from tuneyard.metrics.metric import Figure, Metric, Need, Row, Totals

_BINS = 10
_CALIBRATION = ("rows", *(f"{kind}_{each}" for kind in ("confidence", "right") for each in range(_BINS)))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choices of a row: their log-likelihoods in nats, the lengths of their texts in characters, and the place of the right one."""

    logs: tuple[float, ...]
    sizes: tuple[int, ...]
    right: int

    @property
    def likeliest(self) -> int:
        """The place of the likeliest choice; of equal ones the first, as numpy's argmax."""
        return max(range(len(self.logs)), key=lambda place: self.logs[place])

    @property
    def likeliest_by_length(self) -> int:
        """The same by the log-likelihood of a character, so that long choices are not at a disadvantage."""
        return max(range(len(self.logs)), key=lambda place: self.logs[place] / max(1, self.sizes[place]))

    @property
    def confidence(self) -> float:
        """The probability of the likeliest choice among the choices: their likelihoods, divided by their sum."""
        highest = max(self.logs)
        return 1 / math.fsum(math.exp(log - highest) for log in self.logs)


def choice_metrics() -> tuple[Metric, ...]:
    """The table's entries."""
    needs: tuple[Need, ...] = ("choices", "reference")
    return (
        mean(
            "acc",
            title="accuracy",
            description="share of rows whose likeliest choice is the right one; `acc` of lm-evaluation-harness",
            needs=needs,
            per_row=lambda row: float(_of(row).likeliest == _of(row).right),
            values="zero or one",
            settings=("choices",),
        ),
        mean(
            "acc_norm",
            title="accuracy by length",
            description="the same by the log-likelihood divided by the characters of the choice; `acc_norm` of lm-evaluation-harness",
            needs=needs,
            per_row=lambda row: float(_of(row).likeliest_by_length == _of(row).right),
            values="zero or one",
            settings=("choices",),
        ),
        _calibration_error(),
    )


def _calibration_error() -> Metric:
    figure = Figure(
        name="calibration_error",
        title="calibration error",
        description="mean distance of confidence and accuracy over ten bins of confidence, 0 to 1",
        higher_is_better=False,
        value=calibration_error,
    )
    return Metric(
        name="calibration_error",
        description="expected calibration error of the choices (Guo et al. 2017): rows in ten bins by the probability of the likeliest "
        "choice among the choices; the mean distance of a bin's probability and its share of right rows, weighted by rows",
        needs=frozenset({"choices", "reference"}),
        count=_bins,
        figures=(figure,),
        row_sums=_CALIBRATION,
        settings=("choices",),
    )


def _bins(rows: Sequence[Row]) -> Totals:
    sums: Totals = dict.fromkeys(_CALIBRATION, 0.0)
    sums["rows"] = len(rows)
    for row in rows:
        chosen = _of(row)
        place = min(_BINS - 1, max(0, math.ceil(chosen.confidence * _BINS) - 1))
        sums[f"confidence_{place}"] += chosen.confidence
        sums[f"right_{place}"] += chosen.likeliest == chosen.right
    return sums


def calibration_error(sums: Totals) -> float:
    """From sums over rows: in each bin, the sum of confidences and the number of right rows."""
    return math.fsum(abs(sums[f"confidence_{each}"] - sums[f"right_{each}"]) for each in range(_BINS)) / sums["rows"]


def _of(row: Row) -> Chosen:
    assert row.choices is not None
    return row.choices
