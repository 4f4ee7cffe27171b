"""Decides when a status is written: at once if something depends on it, else at a rate that all jobs share. Pure."""

from __future__ import annotations

from tuneyard.api import JobStatus
from tuneyard_operators.hub.outcomes import Outcome, Verb

_BETWEEN_WRITES_S = 2.0
"""Least seconds between two writes of a status that nothing depends on. The next write includes all changes in between."""
_AFTER_A_PLACEMENT_S = 5.0
"""The same after a placement: meanwhile the RayJob and its pods appear and, if the node has the images, the ranks start."""
_WRITES_PER_S = 50.0
"""Most writes of progress and of reasons for waiting, over all jobs. An API server spends some 6 ms of a core on each."""


def must_be_on_record(before: JobStatus, outcome: Outcome, *, is_first: bool) -> bool:
    """Whether a status must be written at once, because actions, other jobs or the next leader depend on it.

    `is_first`: the job has no status yet. A first status of a waiting job may wait: its reason is known after the next scheduling cycle.
    """
    after = outcome.status
    acts = any(action.verb is not Verb.ADD_FINALIZER for action in outcome.actions)
    if is_first:
        return bool(acts or after.message or after.attempts or after.phase.final)
    return acts or _weight(before) != _weight(after)


def _weight(status: JobStatus) -> tuple[object, ...]:
    """The part of a status that others rely on."""
    attempts = [(each.number, each.stopping, each.ended_at, each.cleaned, each.woken_at, each.door) for each in status.attempts]
    return status.phase.final, status.observed_generation, attempts, [task.owed_since for task in status.tasks]


def is_news(before: JobStatus, after: JobStatus) -> bool:
    """Whether the status has news for people: another phase, or a first or withdrawn predicted start."""
    return before.phase != after.phase or (before.expected_start is None) != (after.expected_start is None)


def between_writes_s(unfinished: int, *, news: bool, placed: bool) -> float:
    """Least seconds between two writes of a status that nothing depends on. `unfinished`: number of jobs that have not ended.

    `placed`: an attempt was placed, and its RayJob has not been seen.
    """
    if news:
        return _BETWEEN_WRITES_S
    return max(_AFTER_A_PLACEMENT_S if placed else _BETWEEN_WRITES_S, unfinished / _WRITES_PER_S)
