"""Counters of run history on a hub. What is not on record yet is told by `HistoryWriter.series`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class HistoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows = Counter("tuneyard_history_rows", "rows of run history that were written", registry=registry)
        help_text = "failures of run history; reason: away, refused, let go or error"
        self.failures = Counter("tuneyard_history_failures", help_text, ["reason"], registry=registry)
        for reason in ("away", "refused", "let go", "error"):  # a series that begins with its first event shows no increase by it
            self.failures.labels(reason)
