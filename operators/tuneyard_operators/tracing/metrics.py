"""Counters of traces on a hub. What is not sent yet is told by `TraceSender.series`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class TracingMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.spans = Counter("tuneyard_trace_spans", "spans that the receiver took", registry=registry)
        self.failures = Counter("tuneyard_trace_failures", "requests with spans that failed", registry=registry)
