"""When a status is written: at once if something depends on it, else at a pace that all jobs share. Pure."""

from __future__ import annotations

from tuneyard.api import JobStatus
from tuneyard_operators.hub.outcomes import Outcome, Verb

_BETWEEN_WRITES_S = 2.0
"""Least seconds between two writes of a status without weight: changes in between go with the next one."""
_AFTER_A_PLACEMENT_S = 5.0
"""The same after a placement: its RayJob is seen, its pods come and, if images are there already, its ranks begin."""
_WRITES_PER_S = 50.0
"""Writes of progress and of reasons for waiting, over all jobs: an API server takes some 6 ms of a core for one."""


def must_be_on_record(before: JobStatus, outcome: Outcome, *, is_first: bool) -> bool:
    """Whether something is done, freed or promised because of the outcome's status: it is written at once then.

    `is_first`: the job has no status yet. Where it waits, and what for, is known after the next scheduling cycle.
    """
    after = outcome.status
    acts = any(action.verb is not Verb.ADD_FINALIZER for action in outcome.actions)
    if is_first:
        return bool(acts or after.message or after.attempts or after.phase.final)
    return acts or _weight(before) != _weight(after)


def _weight(status: JobStatus) -> tuple[object, ...]:
    """What of a status others rely on."""
    attempts = [(each.number, each.stopping, each.ended_at, each.cleaned) for each in status.attempts]
    return status.phase.final, status.observed_generation, attempts, [task.owed_since for task in status.tasks]


def is_news(before: JobStatus, after: JobStatus) -> bool:
    """Whether people wait for the status: the phase changes, or a start is predicted for the first time."""
    return before.phase != after.phase or (before.expected_start is None) != (after.expected_start is None)


def between_writes_s(unfinished: int, *, news: bool, placed: bool) -> float:
    """Least seconds between two writes of a status without weight. `unfinished`: number of jobs that have not ended.

    `placed`: an attempt is to start, and nothing of it has been seen.
    """
    if news:
        return _BETWEEN_WRITES_S
    return max(_AFTER_A_PLACEMENT_S if placed else _BETWEEN_WRITES_S, unfinished / _WRITES_PER_S)
