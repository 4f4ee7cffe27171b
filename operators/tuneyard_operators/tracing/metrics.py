"""Metrics of traces on a hub."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class TracingMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.spans = Counter("tuneyard_trace_spans", "spans that the receiver took", registry=registry)
        self.failures = Counter("tuneyard_trace_failures", "requests with spans that failed", registry=registry)
        self.waiting = Gauge("tuneyard_trace_waiting_jobs", "jobs with spans that may not be sent yet", registry=registry)
