"""What a score task is asked to do, with nothing left open, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import ScoreTask


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
    """What is known at the end. `metrics` are means over the rows that have them."""

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
    rows_resumed: int = 0
    """Rows that an earlier attempt had committed already."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """The first rows: prompt, output, reference, error."""
    details: dict[str, Any] = field(default_factory=dict)
