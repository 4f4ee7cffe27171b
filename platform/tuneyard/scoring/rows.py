"""One row of the data set after the engine had it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.api import ScoreTask
from tuneyard.metrics import METRICS, needing


@dataclass(slots=True)
class ScoredRow:
    """What becomes of row `row` (its place in the data set, from 0). None: not asked for, not to be had, or an error."""

    row: int
    references: tuple[str, ...] = ()
    """Expected answers; a metric takes the one that the output comes closest to."""
    output: str | None = None
    error: str | None = None
    finish_reason: str | None = None
    """stop (end token or stop text) or length."""
    input_tokens: int = 0
    output_tokens: int = 0
    latency_s: float | None = None
    """From the hand-over to the engine to the last token."""
    nll: float | None = None
    """Negative log-likelihood of the reference's tokens together, in nats."""
    reference_tokens: int = 0
    evaluated_tokens: int = 0
    values: dict[str, float] = field(default_factory=dict)
    """Metric -> value of this row (see `tuneyard.metrics`)."""


@dataclass(frozen=True)
class Asks:
    """What is asked of the engine about each row: an output, the likelihood of the reference, or both."""

    output: bool
    likelihood: bool


def asks_of(task: ScoreTask) -> Asks:
    """Outputs are left out where metrics are asked for and none of them needs any."""
    metrics = [METRICS[name] for name in task.metrics]
    return Asks(output=not metrics or bool(needing("output", metrics)), likelihood=bool(needing("likelihood", metrics)))
