"""How long a placed task has waited in the queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tuneyard.api import Attempt
from tuneyard_operators.hub.clock import at
from tuneyard_operators.hub.goals import Goal


def queue_wait_s(goal: Goal, attempt: Attempt, attempts: Iterable[Attempt]) -> float | None:
    """Seconds from the moment at which the task could have started to the placement of `attempt`; None if it has not been placed.

    A task can start once its JobSpec exists, the tasks that it needs have ended, and its attempt before has ended. A server that
    sleeps can start once it is woken.
    """
    if attempt.placed_at is None:
        return None
    try:
        spec = goal.job.spec
        needed = {attempt.task, *spec.needs(spec.task(attempt.task))}
    except StopIteration:  # the spec was changed, and has no such task any more
        needed = {attempt.task}
    ends = [
        at(each.woken_at or each.ended_at) for each in attempts if each.ended_at and each.task in needed and each.number != attempt.number
    ]
    return max(0.0, (at(attempt.placed_at) - max([goal.created, *ends])).total_seconds())
