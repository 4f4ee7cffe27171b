"""A scored row, and the requests that a task needs per row."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.api import ScoreTask
from tuneyard.data.control_tokens import NONE, Spelled
from tuneyard.metrics import PLAIN, Totals, Ways, metric_named, needing
from tuneyard.metrics.choices import Chosen
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
    greedy: bool | None = None
    """Of a request of lm-evaluation-harness: whether all tokens of the continuation are the model's likeliest."""
    output_ids: tuple[int, ...] | None = None
    """Of such a request: the tokens of the answer."""
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
    extracted: str | None = None
    """The answer that `score.answer` cuts out of the output; None: it cuts nothing out, or there is none (see `answered`)."""
    answered: bool = True
    """False: `score.answer` finds no answer in the output."""
    expected: tuple[str, ...] = ()
    """The references with their answers cut out, where `score.answer` is given."""
    samples: tuple[str | None, ...] = ()
    """The outputs of all samples in order, where there are several."""
    drawn: tuple[str | None, ...] = ()
    """The answers in `samples`."""
    choices: Chosen | None = None
    """The likelihoods of the choices, and the right one."""
    ways: Ways = PLAIN
    """How metrics compute the row's values."""
    retried: bool = False
    """Whether a judge was asked twice."""
    spelled: Spelled = NONE
    """Control tokens that the texts of its prompts spell."""
    values: dict[str, float] = field(default_factory=dict)
    """Metric -> value of this row (see `tuneyard.metrics`)."""
    sums: dict[str, Totals] = field(default_factory=dict)
    """Metric -> sums of this row, for metrics with `row_sums`."""

    @property
    def said(self) -> str:
        """What is compared with `wanted`: the answer in the output, or all of it; empty where there is none."""
        return (self.extracted if self.extracted is not None or not self.answered else self.output) or ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The references that are compared with `said`."""
        return self.expected or self.references

    @property
    def choice_logs(self) -> list[float] | None:
        """The log-likelihoods of the choices, in nats."""
        return None if self.choices is None else list(self.choices.logs)


_USUAL_CHOICES = 4


@dataclass(frozen=True)
class Asks:
    """The requests per row: an output, the likelihood of the reference, both, or the likelihoods of choices."""

    output: bool
    likelihood: bool
    choices: bool = False
    requests: int = 1
    """Their number; a guess where rows have choices of their own."""


def asks_of(task: ScoreTask) -> Asks:
    """The requests that a task needs per row. Outputs are not requested where the task has metrics and none of them needs outputs."""
    if task.judge is not None:
        return Asks(output=True, likelihood=False)
    if task.data.lm_eval is not None:
        return Asks(output=False, likelihood=False)  # each row is one request
    if task.choices is not None:
        return Asks(output=False, likelihood=False, choices=True, requests=len(task.choices.texts or ()) or _USUAL_CHOICES)
    metrics = [metric_named(name) for name in task.measured]
    output = not metrics or any(needing(need, metrics) for need in ("output", "samples"))
    likelihood = bool(needing("likelihood", metrics))
    return Asks(output=output, likelihood=likelihood, requests=output * task.generation.samples + likelihood)
