"""The conditions of a JobSpec, in the format of Kubernetes: `kubectl wait --for=condition=Succeeded` works."""

from __future__ import annotations

from datetime import datetime

from tuneyard.api import Condition, JobStatus, Phase
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.status_size import shortened


def with_conditions(status: JobStatus, goal: Goal, now: datetime) -> JobStatus:
    """`status` with updated conditions. A transition time changes only with the status of its condition."""
    phase = status.phase
    wanted = [
        ("Valid", not goal.problem, "Refused" if goal.problem else "Accepted", goal.problem),
        ("Placed", phase in (Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED), str(phase), status.message if phase is Phase.QUEUED else ""),
        ("Running", phase is Phase.RUNNING, str(phase), ""),
        ("Succeeded", phase is Phase.SUCCEEDED, str(phase), ""),
        ("Failed", phase is Phase.FAILED, str(phase), status.message if phase is Phase.FAILED else ""),
        ("Finished", phase.final, str(phase), ""),
        *([("Unreadable", True, "OverBudget", goal.unreadable)] if goal.unreadable else []),
    ]
    before = {condition.type: condition for condition in status.conditions}
    status.conditions = [
        _condition(before.get(kind), kind, "True" if holds else "False", reason, shortened(message), goal.generation, now)
        for kind, holds, reason, message in wanted
    ]
    return status


def _condition(before: Condition | None, kind: str, value: str, reason: str, message: str, generation: int, now: datetime) -> Condition:
    moved = before is None or before.status != value
    since = written(now) if moved or before is None else before.last_transition_time
    if before is not None and (value, reason, message, generation) == (
        before.status,
        before.reason,
        before.message,
        before.observed_generation,
    ):
        return before
    return Condition(type=kind, status=value, reason=reason, message=message, last_transition_time=since, observed_generation=generation)
