"""The resolved request of one attempt at a score task, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import ScoreTask
from tuneyard.catalog.gpu_facts import Basis
from tuneyard.data.control_tokens import controls_notes

_ORDER_DEPENDENT, _LEAST_ASKED = 0.25, 20
"""Share of the pairs of answers that a judge was asked about, and their least number, from which on order-dependent verdicts are a warning.
A judge that names A or B by chance has a share of 0.5."""
_USELESS, _MOST = 0.1, 0.5
"""Shares of outputs that cause a warning: for empty or looping outputs, and for outputs cut at a limit, which every model has."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """One attempt at a score task. `from` in `task.model` and `task.data` is already resolved."""

    job: str
    name: str
    task: ScoreTask
    model_uri: str
    output: str
    """URI of the task's output folder, which holds parts/part-NNNNN.parquet."""
    scratch: str
    adapter_uri: str | None = None
    instances: int = 1
    sku: str = "cpu"
    price_per_device_hour: float = 0.0
    """Of a GPU, or of an engine's slot on `cpu`; 0: unknown."""
    attempt: int = 1
    harness: dict[str, Any] = field(default_factory=dict)
    """Of tasks of lm-evaluation-harness: what identifies their requests, by names in the JobSpec."""
    resume: bool = True
    """Keep the parts of earlier attempts under `output`; False: remove them first."""


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """The result. `metrics`: figure -> value, over the rows that have it."""

    rows: int
    errors: int
    metrics: dict[str, float]
    output: str
    """URI of the folder of scored rows, which holds only Parquet parts: `pandas.read_parquet(output)`."""
    input_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    mfu: float | None
    """None at an endpoint, whose devices and model are not known."""
    latency_s: dict[str, float]
    """p50, p90, p99 of the latency of a row, from its submission to the engine to its last token."""
    wall_s: float
    """Seconds of this attempt's scoring, from the start of the engines to the last commit. The report has the seconds of the whole task."""
    status: str = "succeeded"
    """succeeded | stopped (on request; committed parts stay, and the figures cover them)"""
    empty: int = 0
    """Rows with an empty output."""
    looping: int = 0
    """Rows whose output ends in a loop: the last phrase at least three times in a row."""
    cut_off: int = 0
    """Rows whose output was cut at a limit (`finish_reason` is length)."""
    off_schema: int = 0
    """Outputs that do not follow `generation.schema`: cut off, or of an endpoint that ignores schemas."""
    unanswered: int = 0
    """Rows in which `score.answer` finds no answer. Metrics count them as wrong."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Figure -> 95 % confidence interval, for figures that have one."""
    peak_from: Basis = "datasheet"
    """The source of the peak in `mfu`: a data sheet, a measurement of the device, or a file of the user."""
    cost: float | None = None
    """Price of the tokens of an endpoint, in all attempts; or of the devices in the time of this attempt. None: no price is known."""
    cost_per_1000_rows: float | None = None
    """Of the rows that were scored for this cost."""
    embedding_cost: float | None = None
    """The part of `cost` that an endpoint of embeddings has charged."""
    rows_resumed: int = 0
    """Rows committed by earlier attempts."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """A typical row, then the first rows: `row`, `typical`, prompt, output, reference, error (see `samples`)."""
    details: dict[str, Any] = field(default_factory=dict)

    def warnings(self, max_tokens: int) -> list[str]:
        """Warnings about the outputs, one sentence each. `max_tokens`: the limit of the outputs."""
        said = [
            f"{count} of {self.rows} outputs {what}; look at some of them, whatever the metrics are"
            for count, what in ((self.empty, "are empty"), (self.looping, "end in a loop: the same phrase again and again"))
            if count > _USELESS * self.rows
        ]
        answers = self.rows - self.errors
        if self.off_schema > _USELESS * answers:
            said.append(
                f"{self.off_schema} of {answers} answers do not follow generation.schema: raise generation.maxTokens if they are cut off; "
                "else the endpoint ignores schemas"
            )
        if self.unanswered:
            said.append(f"no answer in {self.unanswered} of {answers} rows: score.answer finds none there, and they are scored as wrong")
        spelled = self.details.get("control_tokens", {})
        said += controls_notes(spelled.get("as_text", {}), spelled.get("as_tokens", {}))
        if self.details.get("bleu", {}).get("why"):
            said.append(self.details["bleu"]["why"])
        said += _order_dependent(self.details.get("pairwise", {}))
        cut_rows = self.details.get("embedding", {}).get("cut_rows", 0)
        if cut_rows:
            said.append(f"{cut_rows} rows have texts longer than the embedding model takes: embedding_similarity sees their beginnings")
        if self.cut_off > _MOST * answers:
            limit = f"maxTokens {max_tokens}, or at the model's length"
            advice = "raise generation.maxTokens; if answers continue after their end, set generation.stop"
            said.append(f"{self.cut_off} of {answers} answers were cut off at {limit}: {advice}")
        return said


def _order_dependent(pairwise: dict[str, Any]) -> list[str]:
    """A warning about a judge of two answers whose verdicts follow the order in which it sees them."""
    asked = pairwise.get("rows", 0) - pairwise.get("identical", 0)
    flipped = pairwise.get("order_dependent", 0)
    if asked < _LEAST_ASKED or flipped < _ORDER_DEPENDENT * asked:
        return []
    first, second = pairwise["first_preferred"], pairwise["second_preferred"]
    return [
        f"the judge's verdicts on {flipped} of {asked} pairs of answers change with their order, so that these rows are ties (it preferred "
        f"the first answer in {first:.0%} of verdicts, the second in {second:.0%}): the win rate says little; take a stronger judge, or a "
        "rubric that decides such rows"
    ]
