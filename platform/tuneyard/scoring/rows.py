"""A scored row, and the requests that a task needs per row."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.api import ScoreTask
from tuneyard.metrics import Totals, metric_named, needing
from tuneyard.metrics.similarity import Similarity
from tuneyard.metrics.win_rate import Preference


@dataclass(frozen=True, slots=True)
class Paid:
    """Tokens for which an endpoint charges. `unknown`: number of answers without a count."""

    input_tokens: int = 0
    output_tokens: int = 0
    unknown: int = 0

    def plus(self, other: Paid) -> Paid:
        return Paid(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens, self.unknown + other.unknown)

    def minus(self, other: Paid) -> Paid:
        return Paid(self.input_tokens - other.input_tokens, self.output_tokens - other.output_tokens, self.unknown - other.unknown)

    def at_least_0(self) -> Paid:
        return Paid(max(0, self.input_tokens), max(0, self.output_tokens), max(0, self.unknown))


UNPAID = Paid()


@dataclass(slots=True)
class ScoredRow:
    """The scores of row `row` (its number in the data set, from 0). None: not requested, not available, or an error."""

    row: int
    references: tuple[str, ...] = ()
    """Expected answers; a metric compares the output with the closest one."""
    output: str | None = None
    """The answer, without the model's thoughts."""
    reasoning: str | None = None
    """The model's thoughts (see `thoughts`); None: it had none."""
    error: str | None = None
    finish_reason: str | None = None
    """stop (end token or stop text) or length."""
    input_tokens: int = 0
    output_tokens: int = 0
    follows_schema: bool | None = None
    """Whether the output is JSON of `generation.schema`; None: there is no schema, or no output."""
    latency_s: float | None = None
    """From the submission to the engine to the last token."""
    nll: float | None = None
    """Negative log-likelihood of all tokens of the reference, in nats."""
    reference_tokens: int = 0
    evaluated_tokens: int = 0
    paid: Paid = UNPAID
    """Tokens for which an endpoint charges, also for a row with an error."""
    embedded: Paid = UNPAID
    """Tokens for which an endpoint of embeddings charges: those of the rows of a part stand in one row."""
    verdict: float | None = None
    """The score of a judge."""
    preference: Preference | None = None
    """The verdicts of a judge on two answers."""
    similarity: Similarity | None = None
    """The cosine of the embeddings of output and reference."""
    retried: bool = False
    """Whether a judge was asked twice."""
    values: dict[str, float] = field(default_factory=dict)
    """Metric -> value of this row (see `tuneyard.metrics`)."""
    sums: dict[str, Totals] = field(default_factory=dict)
    """Metric -> sums of this row, for metrics with `row_sums`."""


@dataclass(frozen=True)
class Asks:
    """The requests per row: an output, the likelihood of the reference, or both."""

    output: bool
    likelihood: bool


def asks_of(task: ScoreTask) -> Asks:
    """The requests that a task needs per row. Outputs are not requested where the task has metrics and none of them needs outputs."""
    if task.judge is not None:
        return Asks(output=True, likelihood=False)
    metrics = [metric_named(name) for name in task.measured]
    return Asks(output=not metrics or bool(needing("output", metrics)), likelihood=bool(needing("likelihood", metrics)))
