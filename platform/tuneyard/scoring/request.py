"""What a score task is asked to do, with nothing left open, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import ScoreTask
from tuneyard.catalog.gpu_facts import Basis

_USELESS, _MOST = 0.1, 0.5
"""Shares of outputs that are worth a warning. A limit cuts off some answers of any model."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """One attempt at a score task; `task.model` and `task.data` hold no `from` any more."""

    job: str
    name: str
    task: ScoreTask
    model_uri: str
    output: str
    """URI of the task's own output folder: parts/part-NNNNN.parquet go below it."""
    scratch: str
    adapter_uri: str | None = None
    instances: int = 1
    sku: str = "cpu"
    attempt: int = 1
    resume: bool = True
    """Keep the parts that an earlier attempt committed under `output`; False: remove them first."""


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """What is known at the end. `metrics`: figure -> value, over the rows that have it."""

    rows: int
    errors: int
    metrics: dict[str, float]
    output: str
    """URI of the folder that holds the scored rows, and nothing but Parquet parts: `pandas.read_parquet(output)`."""
    input_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    mfu: float
    latency_s: dict[str, float]
    """p50, p90, p99 of one row, from its hand-over to the engine to its last token."""
    wall_s: float
    status: str = "succeeded"
    """succeeded | stopped (asked to stop; what was committed stays, the sums are of that)"""
    empty: int = 0
    """Rows whose output has nothing in it."""
    looping: int = 0
    """Rows whose output ends in a loop: the last phrase at least three times in a row."""
    cut_off: int = 0
    """Rows whose output did not end by itself (`finish_reason` is length)."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Figure -> bounds at 95 % confidence, where there are any."""
    peak_from: Basis = "datasheet"
    """Where the peak of `mfu` comes from: a data sheet, a measurement of the device, or a file of the user."""
    rows_resumed: int = 0
    """Rows that an earlier attempt had committed already."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """A typical row, then the first ones: `row`, `typical`, prompt, output, reference, error (see `samples`)."""
    details: dict[str, Any] = field(default_factory=dict)

    def warnings(self, max_tokens: int) -> list[str]:
        """What a person should know of the outputs though nothing failed, one sentence each.

        `max_tokens`: the limit that the outputs were made with.
        """
        said = [
            f"{count} of {self.rows} outputs {what}; whatever the metrics say, look at some"
            for count, what in ((self.empty, "are empty"), (self.looping, "end in a loop: the same phrase again and again"))
            if count > _USELESS * self.rows
        ]
        answers = self.rows - self.errors
        if self.cut_off > _MOST * answers:
            limit = f"maxTokens {max_tokens}, or at the model's length"
            advice = "raise generation.maxTokens; if answers run on behind their end, name what ends them in generation.stop"
            said.append(f"{self.cut_off} of {answers} answers were cut off at {limit}: {advice}")
        return said
