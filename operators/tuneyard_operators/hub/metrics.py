"""The hub's metrics for Prometheus: counters and histograms of events, and the collector of its present state.

docs/monitoring.md has the table of all metrics. A counter grows after the status that tells of its event is stored: an event counts once,
and a hub that is killed in between loses it.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tuneyard.api import Attempt, FailureKind, JobStatus, Phase
from tuneyard_operators.history.metrics import HistoryMetrics
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.queue_waits import queue_wait_s
from tuneyard_operators.metrics import LiveState, TeamNames
from tuneyard_operators.tracing.metrics import TracingMetrics

_WAITS_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600)
_CYCLES_S = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_REQUESTS_S = (0.005, 0.02, 0.1, 0.5, 2, 10)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        one = self.registry
        self.leader = Gauge("tuneyard_leader", "1 on the leader", registry=one)
        self.state = LiveState()
        one.register(self.state)
        self.teams = TeamNames()
        self.waits = Histogram(
            "tuneyard_queue_wait_seconds", "time that a placed task has waited", ["team"], buckets=_WAITS_S, registry=one
        )
        self.placements = Counter(
            "tuneyard_placements",
            "attempts that were placed; reason: first, or the failure before",
            ["cluster", "sku", "reason"],
            registry=one,
        )
        self.preemptions = Counter("tuneyard_preemptions", "attempts that were asked to make room for others", ["team"], registry=one)
        self.attempts = Counter("tuneyard_attempts", "attempts that ended", ["outcome"], registry=one)
        self.failures = Counter("tuneyard_attempt_failures", "attempts that failed", ["kind"], registry=one)
        self.webhooks = Counter("tuneyard_webhooks", "messages to webhooks; outcome: sent or failed", ["outcome"], registry=one)
        self.reconciles = Counter("tuneyard_reconcile", "reconciliations of JobSpecs", ["result"], registry=one)
        self.reconcile_s = Histogram("tuneyard_reconcile_seconds", "duration of one reconciliation of a JobSpec", registry=one)
        self.cycle_s = Histogram("tuneyard_scheduling_cycle_seconds", "duration of a scheduling cycle", buckets=_CYCLES_S, registry=one)
        self.requests = Counter("tuneyard_api_requests", "requests to API servers", ["cluster", "verb", "resource", "code"], registry=one)
        self.request_s = Histogram(
            "tuneyard_api_request_seconds",
            "duration of requests to API servers, without watches",
            ["cluster"],
            buckets=_REQUESTS_S,
            registry=one,
        )
        self.history = HistoryMetrics(one)
        self.traces = TracingMetrics(one)
        self.log_requests = Counter("tuneyard_log_requests", "answers of the API of logs", ["code"], registry=one)
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Make the series of rare events. A series that begins with its first event shows Prometheus no increase by that event."""
        for kind in FailureKind:
            self.failures.labels(str(kind))
        for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.PREEMPTED, Phase.CANCELLED):
            self.attempts.labels(str(phase))
        for outcome in ("sent", "failed"):
            self.webhooks.labels(outcome)
        for result in ("ok", "conflict", "refused", "unreadable", "error"):
            self.reconciles.labels(result)

    def count(self, goal: Goal, team: str, before: JobStatus, after: JobStatus) -> list[Attempt]:
        """Count what happened between two statuses of a job. Returns the attempts that ended."""
        known = {attempt.number: attempt for attempt in before.attempts}
        over = []
        for attempt in after.attempts:
            earlier = known.get(attempt.number)
            if earlier is None:
                self._count_placement(goal, team, attempt, after)
            if attempt.stopped_for and not (earlier is not None and earlier.stopped_for):
                self.preemptions.labels(self.teams.label(team)).inc()
            if attempt.ended_at and not (earlier is not None and earlier.ended_at):
                over.append(attempt)
                self.attempts.labels(str(attempt.phase)).inc()
                if attempt.failure:
                    self.failures.labels(attempt.failure).inc()
        return over

    def forget_teams(self, teams: Iterable[str]) -> None:
        """Drop the series of teams that have lost their label."""
        for team in teams:
            self.preemptions.remove(team)
            self.waits.remove(team)

    def count_request(self, cluster: str, verb: str, resource: str, status: int, seconds: float) -> None:
        self.requests.labels(cluster, verb, resource, str(status)).inc()
        if verb != "WATCH":
            self.request_s.labels(cluster).observe(seconds)

    def count_webhook(self, sent: bool) -> None:
        self.webhooks.labels("sent" if sent else "failed").inc()

    def _count_placement(self, goal: Goal, team: str, attempt: Attempt, after: JobStatus) -> None:
        if attempt.placement is None:
            return
        earlier = [each for each in after.attempts if each.task == attempt.task and each.number < attempt.number]
        reason = "first" if not earlier else earlier[-1].failure or str(FailureKind.INTERNAL)
        self.placements.labels(attempt.placement.cluster, attempt.placement.sku, reason).inc()
        wait_s = queue_wait_s(goal, attempt, after.attempts)
        if wait_s is not None:
            self.waits.labels(self.teams.label(team)).observe(wait_s)
