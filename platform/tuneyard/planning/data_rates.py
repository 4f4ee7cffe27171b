"""Tokens per second that one data worker produces from a source: measured constants, and the rates of past runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BENCHMARK = "benchmarks/data_worker_rate.py"
WORKER_GB = 0.2
"""Memory of a data worker that runs beside the ranks, without the pages shared with its rank (docs/benchmarks/data_worker_rate.md)."""
_MEASURED: Mapping[tuple[str, str], float] = {
    ("chat", "jsonl"): 330_000.0,
    ("text", "jsonl"): 520_000.0,
    ("text", "parquet"): 520_000.0,
    ("text", "jsonl.gz"): 500_000.0,
}
"""Tokens per second of one core, by format and files, from the page cache of a local disk (docs/benchmarks/data_worker_rate.md)."""
_LEAST_TOKENS, _LEAST_SECONDS = 100_000, 0.2
"""Runs with less work are too short to measure speed."""
_LATEST = 20


@dataclass(frozen=True, kw_only=True)
class DataRate:
    """`tokens_per_s`: of one data worker on its own core. `how`: origin of the number, for people."""

    tokens_per_s: float
    how: str


def usual_rate(format: str, files: str) -> DataRate:
    """The measured rate of a format (`chat`, `text`, …) in files of a kind (`jsonl`, `parquet`, `jsonl.gz`, …).

    An unmeasured combination has the slowest rate of its format. Pairs count as chats.
    """
    format = format if format == "text" else "chat"
    known = {kind: rate for (name, kind), rate in _MEASURED.items() if name == format}
    return DataRate(tokens_per_s=known.get(files, min(known.values())), how=f"by {BENCHMARK}")


def past_rates(attempts: Iterable[Mapping[str, Any]]) -> dict[str, DataRate]:
    """By format, the median rate of the newest runs on streamed data. `attempts`: from `History.training_runs`, oldest first.

    The rate of a run is from `details.stream` of its report: `tokens` over the sum of `seconds`, which are those of one process.
    """
    found: dict[str, list[float]] = {}
    for attempt in attempts:
        details = (attempt.get("result") or {}).get("details") or {}
        stream = details.get("stream") or {}
        tokens, seconds = stream.get("tokens") or 0, sum((stream.get("seconds") or {}).values())
        if tokens >= _LEAST_TOKENS and seconds >= _LEAST_SECONDS:
            found.setdefault(str((details.get("data") or {}).get("format", "")), []).append(tokens / seconds)
    return {format: _median(rates[-_LATEST:]) for format, rates in found.items()}


def _median(rates: Sequence[float]) -> DataRate:
    runs = f"{len(rates)} run{'' if len(rates) == 1 else 's'}"
    return DataRate(tokens_per_s=statistics.median(rates), how=f"by {runs} of your history")
