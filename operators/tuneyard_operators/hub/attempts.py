"""Follows one attempt from placement to end, by its report, RayJob and pods. Pure, except that it updates `Attempt` and `TaskStatus`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tuneyard.api import Attempt, Failure, FailureKind, Phase, TaskStatus
from tuneyard_operators.hub.clock import at, seconds_since, written
from tuneyard_operators.hub.evidence import failure_of, is_head, is_pulling, progress_of_start
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.start_times import start_times

_KIND_OF_STOP = {"Cancelled": FailureKind.CANCELLED, "Preempted": FailureKind.PREEMPTED, "Deadline": FailureKind.DEADLINE}
_WORTH_A_WORD_S = 30.0
_LAST_WORDS_S = 15.0
"""Longest delay of a report: a dead pod's last report may still arrive, and an attempt reads a request to stop with its next report."""


@dataclass
class AttemptStep:
    """Actions for an attempt; `later`: seconds until it must be followed again."""

    start: bool = False
    stop: bool = False
    later: list[float] = field(default_factory=list)


def is_active(attempt: Attempt) -> bool:
    return attempt.ended_at is None


def advance_attempt(attempt: Attempt, task: TaskStatus, seen: Observed, now: datetime, settings: Settings) -> AttemptStep:
    """Bring an active attempt up to date with the member, and end it if it has ended there."""
    step = AttemptStep()
    if not seen.known:
        _unreachable(attempt, seen, now, settings, step)
        return step
    if seen.rayjob is not None:
        attempt.created = True
    attempt.start = attempt.start if attempt.stages else start_times(attempt.start, seen, attempt.placement)
    _take_in_report(attempt, task, seen, now)
    if _over(attempt, task, seen, now, settings, step):
        return step
    if not attempt.created:
        if attempt.stopping:
            _end(attempt, task, now, _stopped(attempt))
        elif seen.refused:
            cause = f"the member refuses its RayJob: {seen.refused}"
            _end(attempt, task, now, Failure(kind=FailureKind.USER_ERROR, message=cause, next_step="correct what the message names"))
        else:
            step.start = True
    if attempt.stopping and is_active(attempt):
        _stop(attempt, task, seen, now, settings, step)
    return step


def _unreachable(attempt: Attempt, seen: Observed, now: datetime, settings: Settings, step: AttemptStep) -> None:
    """Wait for an unreachable member, whose attempt may still run. After `member_lost_s` the attempt is lost, and fenced by its token."""
    assert attempt.placement is not None
    where = attempt.placement.cluster
    if seen.unreachable_s <= settings.member_lost_s:
        if seen.unreachable_s > 0:
            step.later.append(settings.member_lost_s - seen.unreachable_s + 0.1)
            if seen.unreachable_s > _WORTH_A_WORD_S:
                attempt.message = f"{where} cannot be reached since {seen.unreachable_s:.0f} s: {seen.why_unreachable}"
        return
    cause = f"the member {where} cannot be reached since {seen.unreachable_s:.0f} s: {seen.why_unreachable}"
    _end(attempt, None, now, Failure(kind=FailureKind.NODE_LOST, message=cause))


def _take_in_report(attempt: Attempt, task: TaskStatus, seen: Observed, now: datetime) -> None:
    state = seen.report.status if seen.report is not None else None
    if state is None:
        if attempt.phase is Phase.STARTING and attempt.created:
            attempt.message = progress_of_start(seen)
        return
    if state.phase is Phase.RUNNING and attempt.phase is Phase.STARTING:
        attempt.phase = Phase.RUNNING
        attempt.started_at = attempt.started_at or state.observed_at or written(now)
    attempt.message = state.message or (state.stage if attempt.phase is Phase.STARTING else "")
    if seen.unreadable:
        attempt.message = f"its report cannot be read in full ({seen.unreadable}); {attempt.message}".removesuffix("; ")
    attempt.resumed_from = max(attempt.resumed_from, state.resumed_from)
    attempt.last_step = max(attempt.last_step, state.progress.step)
    if state.checkpoint_step > attempt.checkpoint_step:
        attempt.checkpoint_step = state.checkpoint_step
        attempt.checkpoint_at = written(now)
    attempt.settings = state.settings or attempt.settings
    attempt.plan = state.plan or attempt.plan
    attempt.summary = state.summary or attempt.summary
    attempt.charged = state.charged if state.charged is not None else attempt.charged
    attempt.stages = state.stages or attempt.stages
    task.progress = state.progress
    task.message = state.message
    if state.metrics:
        task.metrics = state.metrics
    if state.artifacts:
        task.artifacts = state.artifacts


def _over(attempt: Attempt, task: TaskStatus, seen: Observed, now: datetime, settings: Settings, step: AttemptStep) -> bool:
    """True if the attempt has ended, by its report, its RayJob or its pods."""
    state = seen.report.status if seen.report is not None else None
    ray = (seen.rayjob or {}).get("status") or {}
    if (state is not None and state.phase is Phase.SUCCEEDED) or (ray.get("jobStatus") == "SUCCEEDED"):
        _end(attempt, task, now, None)
    elif state is not None and state.failure is not None and state.phase.final:
        _end(attempt, task, now, _stopped(attempt) if attempt.stopping and state.failure.kind is FailureKind.CANCELLED else state.failure)
    elif state is not None and state.phase is Phase.FAILED:
        _end(attempt, task, now, Failure(kind=FailureKind.INTERNAL, message="it failed, and its report does not say why"))
    elif state is not None and state.idle and state.phase is Phase.PREEMPTED:
        _end(attempt, task, now, Failure(kind=FailureKind.PREEMPTED, message=state.message))
    elif state is not None and state.phase in (Phase.PREEMPTED, Phase.CANCELLED):
        _end(attempt, task, now, _stopped(attempt))
    elif attempt.created and seen.rayjob is None:
        lost = Failure(kind=FailureKind.NODE_LOST, message="its RayJob was removed from the member by somebody else")
        _end(attempt, task, now, _stopped(attempt) if attempt.stopping else lost)
    else:
        failure = _lost(attempt, seen, now, settings, step)
        if failure is not None:
            _end(attempt, task, now, failure)
    return not is_active(attempt)


def _lost(attempt: Attempt, seen: Observed, now: datetime, settings: Settings, step: AttemptStep) -> Failure | None:
    """The failure of an attempt that cannot report, or has not reported for too long; None if it may still run."""
    if attempt.phase is Phase.RUNNING:
        seen = seen.without_data_pods
    pulling_s = seconds_since(attempt.placed_at, now) if attempt.placed_at and is_pulling(seen) else 0.0
    if pulling_s:
        step.later.append(max(1.0, settings.image_grace_s - pulling_s))
    failure = failure_of(seen, pulls_failing_s=pulling_s, image_grace_s=settings.image_grace_s)
    if failure is not None and _may_still_speak(attempt, seen, failure):
        # The driver's report has more detail (the rank, its last lines). Wait a moment for it.
        step.later.append(1.0)
        return failure if seen.silent_s > _LAST_WORDS_S else None
    if failure is not None:
        return failure
    if attempt.phase is Phase.RUNNING and not _has_its_head(attempt, seen):
        if seen.silent_s > _LAST_WORDS_S:
            return Failure(kind=FailureKind.NODE_LOST, message="its head pod, which drives the ranks, is gone")
        step.later.append(_LAST_WORDS_S - seen.silent_s + 0.1)
    elif attempt.phase is Phase.RUNNING:
        if seen.silent_s > settings.silent_s:
            return Failure(kind=FailureKind.NODE_LOST, message=f"it has not reported for {seen.silent_s:.0f} s")
        step.later.append(settings.silent_s - seen.silent_s + 1)
    if attempt.phase is Phase.STARTING and attempt.placed_at is not None:
        waited = seconds_since(attempt.placed_at, now)
        if waited > settings.never_began_s:
            why = progress_of_start(seen)
            return Failure(kind=FailureKind.NODE_LOST, message=f"its ranks had not begun {waited:.0f} s after its placement: {why}")
        step.later.append(settings.never_began_s - waited + 1)
    return None


def _has_its_head(attempt: Attempt, seen: Observed) -> bool:
    """False if the head pod is gone or was replaced: the new head that KubeRay makes does not drive the ranks."""
    began = at(attempt.started_at) if attempt.started_at else None
    heads = [at(pod["metadata"]["creationTimestamp"]) for pod in seen.pods if is_head(pod)]
    return any(began is None or made <= began for made in heads)


def _may_still_speak(attempt: Attempt, seen: Observed, failure: Failure) -> bool:
    """True if the driver is alive and can still report a failure of its gang."""
    if attempt.phase is not Phase.RUNNING or seen.report is None:
        return False
    heads = [pod for pod in seen.pods if is_head(pod) and pod.get("status", {}).get("phase") == "Running"]
    alive = [pod for pod in heads if pod["spec"].get("nodeName") not in seen.unready_nodes]
    return bool(alive) and failure.kind is not FailureKind.IMAGE


def _stop(attempt: Attempt, task: TaskStatus, seen: Observed, now: datetime, settings: Settings, step: AttemptStep) -> None:
    """Ask the attempt to stop, wait for its grace period, then end it. The clean-up removes its RayJob."""
    asked_s = seconds_since(attempt.stop_asked_at, now) if attempt.stop_asked_at else 0.0
    if seen.report is None or attempt.phase is Phase.STARTING or asked_s > settings.stop_grace_s + _LAST_WORDS_S:
        _end(attempt, task, now, _stopped(attempt))
        return
    if seen.report.spec.stop is None:
        step.stop = True
    attempt.message = f"is stopping ({attempt.stopping}) and commits a checkpoint"
    step.later.append(settings.stop_grace_s + _LAST_WORDS_S - asked_s + 0.5)


def _stopped(attempt: Attempt) -> Failure:
    """The failure of a stopped attempt. If the hub did not ask it to stop, its node was reclaimed: it counts as preempted."""
    kind = _KIND_OF_STOP.get(attempt.stopping, FailureKind.PREEMPTED)
    if attempt.phase is Phase.STARTING:
        return Failure(kind=kind, message="stopped before it had begun")
    kept = f"its checkpoint of step {attempt.checkpoint_step} is kept" if attempt.checkpoint_step else "before its first checkpoint"
    return Failure(kind=kind, message=f"stopped at step {attempt.last_step}, {kept}")


def _end(attempt: Attempt, task: TaskStatus | None, now: datetime, failure: Failure | None) -> None:
    attempt.ended_at = written(now)
    attempt.message = ""
    if failure is None:
        attempt.phase = Phase.SUCCEEDED
        if task is not None:
            task.phase = Phase.SUCCEEDED
            task.message = ""
        return
    phases = {FailureKind.PREEMPTED: Phase.PREEMPTED, FailureKind.CANCELLED: Phase.CANCELLED}
    attempt.phase = phases.get(failure.kind, Phase.FAILED)
    attempt.failure = str(failure.kind)
    attempt.message = failure.message
    attempt.next_step = failure.next_step
    attempt.failed_node = failure.node
    attempt.log_tail = failure.log_tail
