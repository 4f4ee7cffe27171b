"""Metrics of run history on a hub."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class HistoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows = Counter("tuneyard_history_rows", "rows of run history that were written", registry=registry)
        self.failures = Counter("tuneyard_history_failures", "failures of run history", ["reason"], registry=registry)
        self.lag_s = Gauge("tuneyard_history_lag_seconds", "age of the oldest change that is not in run history", registry=registry)
        self.waiting = Gauge("tuneyard_history_waiting_jobs", "jobs whose last change is not in run history", registry=registry)
        self.held = Gauge("tuneyard_history_held_jobs", "deleted JobSpecs that wait for their record", registry=registry)
