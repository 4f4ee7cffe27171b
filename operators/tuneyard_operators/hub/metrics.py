"""The hub's metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tuneyard.api import JobStatus
from tuneyard_operators.history.metrics import HistoryMetrics
from tuneyard_operators.tracing.metrics import TracingMetrics


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        one = self.registry
        self.leader = Gauge("tuneyard_leader", "1 on the leader", registry=one)
        self.jobs = Gauge("tuneyard_jobs", "JobSpecs by phase", ["phase"], registry=one)
        self.member_up = Gauge("tuneyard_member_up", "1 while the member can be reached", ["cluster"], registry=one)
        self.heartbeat_age = Gauge("tuneyard_member_heartbeat_age_seconds", "seconds since the last heartbeat", ["cluster"], registry=one)
        self.gpus = Gauge("tuneyard_gpus", "GPUs, or worker slots", ["cluster", "sku"], registry=one)
        self.free_gpus = Gauge("tuneyard_free_gpus", "GPUs that no pod of others holds", ["cluster", "sku"], registry=one)
        self.queue_age = Gauge("tuneyard_queue_age_seconds", "age of the oldest job that waits for a placement", registry=one)
        self.data_wait = Gauge(
            "tuneyard_data_wait_ratio",
            "share of their time for which ranks wait for data, from 1 %",
            ["namespace", "job"],
            registry=one,
        )
        self.regressed = Gauge(
            "tuneyard_schedule_regressed", "1 where the newest measured run has regressed", ["namespace", "schedule"], registry=one
        )
        self.reconciles = Counter("tuneyard_reconcile", "reconciliations of JobSpecs", ["result"], registry=one)
        self.reconcile_s = Histogram("tuneyard_reconcile_seconds", "duration of one reconciliation of a JobSpec", registry=one)
        self.attempts = Counter("tuneyard_attempts", "attempts that ended", ["outcome"], registry=one)
        self.failures = Counter("tuneyard_attempt_failures", "attempts that failed", ["kind"], registry=one)
        self.requests = Counter("tuneyard_api_requests", "requests to API servers", ["cluster", "verb", "resource", "code"], registry=one)
        self.cycle_s = Histogram("tuneyard_scheduling_cycle_seconds", "duration of a scheduling cycle", registry=one)
        self.history = HistoryMetrics(one)
        self.traces = TracingMetrics(one)
        self.log_requests = Counter("tuneyard_log_requests", "answers of the API of logs", ["code"], registry=one)

    def count(self, before: JobStatus, after: JobStatus) -> None:
        """Count the attempts that ended between two statuses of a job."""
        ended = {attempt.number for attempt in before.attempts if attempt.ended_at}
        for attempt in after.attempts:
            if attempt.ended_at and attempt.number not in ended:
                self.attempts.labels(str(attempt.phase)).inc()
                if attempt.failure:
                    self.failures.labels(attempt.failure).inc()
