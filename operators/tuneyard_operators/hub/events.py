"""Posts Kubernetes Events on JobSpecs and Schedules, for `kubectl describe`. Best effort: nothing depends on an Event.

With thousands of jobs, Events would be a third of all writes. Beyond a rate limit, Normal Events are dropped: the status has the news
anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.api.secrets import redact
from tuneyard.schedules import News
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.turns import Turns
from tuneyard_operators.kube import EVENT, JOBSPEC, SCHEDULE, Connection

log = logging.getLogger(__name__)
_MOST_WAITING = 2000
_MOST_OF_ONE = 400
"""Most waiting Events of one namespace."""
_PER_SECOND = 10.0
_AT_ONCE = 200
"""Burst of Normal Events; after it, the limit is `_PER_SECOND`."""
_LONGEST = 1000


class Events:
    """Posts Events in the background, within a rate limit for each namespace. Namespaces take turns."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: Turns[dict[str, Any]] = Turns()
        self._some = asyncio.Event()
        self._left: dict[str, tuple[float, float]] = {}
        """Normal Events that a namespace may post, and the time of the count."""

    def tell(self, goal: Goal, before: JobStatus, after: JobStatus) -> None:
        """Post the changes between two statuses of a job."""
        for kind, reason, message in _changes(goal, before, after):
            self._add(goal.job.metadata.namespace, _involved(goal), kind, reason, message)

    def tell_of_runs(self, item: dict[str, Any], news: Iterable[News]) -> None:
        """Post news about the runs of a Schedule."""
        metadata = item["metadata"]
        involved = {
            "apiVersion": SCHEDULE.api_version,
            "kind": SCHEDULE.name,
            **{key: metadata[key] for key in ("name", "namespace", "uid")},
        }
        for each in news:
            kind = "Warning" if each.is_warning else "Normal"
            self._add(metadata["namespace"], involved, kind, each.reason, f"run {each.run}: {each.message}")

    def _add(self, namespace: str, involved: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        has_room = len(self._waiting) < _MOST_WAITING and self._waiting.of(namespace) < _MOST_OF_ONE
        if has_room and (self._may_post(namespace) or kind == "Warning"):
            self._waiting.add(namespace, _event(involved, kind, reason, message))
            self._some.set()

    def _may_post(self, namespace: str) -> bool:
        now = asyncio.get_running_loop().time()
        if len(self._left) > _MOST_WAITING:  # whoever was left out begins with a full burst again
            self._left.clear()
        left, counted_s = self._left.get(namespace, (float(_AT_ONCE), now))
        left = min(_AT_ONCE, left + (now - counted_s) * _PER_SECOND)
        may = left >= 1
        self._left[namespace] = (left - 1 if may else left, now)
        return may

    async def run(self) -> None:
        while True:
            while (found := self._waiting.take()) is None:
                self._some.clear()
                await self._some.wait()
            namespace, event = found
            try:
                await self._connection.create(EVENT, namespace, event, brief=True)
            except Exception as error:  # noqa: BLE001 - an Event that cannot be posted must not stop the others
                log.debug("an event was not posted: %s", error)


def _changes(goal: Goal, before: JobStatus, after: JobStatus) -> Iterator[tuple[str, str, str]]:
    known = {attempt.number: attempt for attempt in before.attempts}
    for attempt in after.attempts:
        old = known.get(attempt.number)
        place = attempt.placement
        if old is None and place is not None:
            yield "Normal", "Placed", f"attempt {attempt.number} of task {attempt.task}: {place.gpus} x {place.sku} on {place.cluster}"
        if attempt.phase is Phase.RUNNING and (old is None or old.phase is not Phase.RUNNING):
            yield "Normal", "Running", f"attempt {attempt.number} of task {attempt.task} runs"
        if attempt.woken_at and old is not None and not old.woken_at:
            yield "Normal", "Woken", f"attempt {attempt.number} of task {attempt.task} sleeps no longer: {_waker(attempt, goal)}"
        if attempt.ended_at and (old is None or not old.ended_at):
            if attempt.asleep_at:
                yield "Normal", "Asleep", f"attempt {attempt.number} of task {attempt.task}: {attempt.message}"
            elif attempt.failure:
                yield "Warning", attempt.failure, f"attempt {attempt.number} of task {attempt.task}: {attempt.message}"
            else:
                yield "Normal", "TaskSucceeded", f"task {attempt.task} has succeeded"
    told = {condition.type for condition in before.conditions}
    for condition in after.conditions:
        if condition.type == "Unreadable" and condition.type not in told:
            yield "Warning", condition.type, condition.message
    if after.phase.final and after.phase is not before.phase:
        yield ("Normal" if after.phase is Phase.SUCCEEDED else "Warning"), str(after.phase), after.message or "all tasks have succeeded"


def _waker(attempt: Attempt, goal: Goal) -> str:
    return "the JobSpec was changed" if goal.generation > attempt.asleep_at else "a request has come"


def _involved(goal: Goal) -> dict[str, Any]:
    metadata = goal.job.metadata
    return {
        "apiVersion": JOBSPEC.api_version,
        "kind": JOBSPEC.name,
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": goal.uid,
    }


def _event(involved: Mapping[str, Any], kind: str, reason: str, message: str) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "metadata": {"name": f"{involved['name']}.{uuid4().hex[:16]}", "namespace": involved["namespace"]},
        "involvedObject": dict(involved),
        "type": kind,
        "reason": reason,
        "message": redact(message[: 2 * _LONGEST])[:_LONGEST],
        "source": {"component": "tuneyard-hub"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
