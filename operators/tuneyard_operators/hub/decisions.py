"""The scheduler's decisions about one job, before its status holds them, and their way into the status. Pure.

`Placements` makes decisions. `lifecycle.advance` writes them into the status: a placement becomes a starting attempt, a victim gets its
notice, and a task that still waits gets the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tuneyard.api import Attempt, JobStatus, Phase, PlacementStatus
from tuneyard.api.status import Reason
from tuneyard.federation import Ask, Place
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.status_size import shortened
from tuneyard_operators.rendering import attempt_name

_FAR = datetime(2900, 1, 1, tzinfo=UTC).timestamp()
"""A start predicted for later than this counts as no prediction."""
_MESSAGE_EVERY_S = 30.0
"""Least seconds between two messages with reasons for waiting, because reasons change with every job that ends."""


_MOST_REASONS = 8
_LONGEST_REASON = 200
_NUMBERS = re.compile(r"[\d.:,]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a task waits. `starts`: its predicted start, in seconds since the epoch."""

    reason: str
    starts: float | None


@dataclass(frozen=True, slots=True)
class Aside:
    """An ask that made a cycle fail. The scheduler gets it again at `again_at` (inf: it has it already), after a longer pause each time."""

    ask: Ask
    pause_s: float
    again_at: float


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task that waits for a placement, or has a placement that no status holds yet."""

    ask: Ask
    place: Place | None = None
    """The placement. The scheduler counts it as allocated."""
    owed_since: float | None = None
    """When victims were first asked to make room for the task; None once the task's status holds it."""
    verdict: Verdict | None = None
    aside: Aside | None = None

    def judged(self, verdict: Verdict | None) -> TaskRecord:
        """The same record with another verdict. Faster than `replace`: a cycle calls it for hundreds of tasks."""
        return TaskRecord(self.ask, self.place, self.owed_since, verdict, self.aside)

    def still_suits(self, ask: Ask) -> bool:
        """Whether `ask` allows the placement. The job or its template may have changed since the decision."""
        place = self.place
        if place is None or ask == self.ask:
            return place is not None
        return (
            place.workers in ask.worlds
            and place.ask.unit == ask.unit
            and (not ask.skus or place.sku in ask.skus)
            and (not ask.clusters or place.cluster in ask.clusters)
            and ask.fewest(place.sku) <= place.workers
        )


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Decisions about one job that its status does not hold yet."""

    tasks: Mapping[str, TaskRecord] = field(default_factory=dict)
    placements: Mapping[str, PlacementStatus] = field(default_factory=dict)
    """Placements of `tasks`, in the form of a status."""
    victims: Mapping[int, str] = field(default_factory=dict)
    """Reason for each attempt to preempt, by the attempt's number."""
    worded_at: datetime | None = None
    """When the status last got the reasons why the job waits."""
    offered: frozenset[str] = frozenset()
    """SKUs of all members. A task without SKUs asks for all of them."""


NOTHING_DECIDED = Decided()


def with_owed(ask: Ask, known: TaskRecord | None) -> Ask:
    """The ask with the time since which victims make room for it, if its status does not hold that time yet."""
    if known is None or known.owed_since is None or ask.owed_since is not None:
        return ask
    return replace(ask, owed_since=known.owed_since)


def start(status: JobStatus, goal: Goal, task: str, placement: PlacementStatus, now: datetime) -> Attempt:
    """Add an attempt of a placed task to the status."""
    number = max((attempt.number for attempt in status.attempts), default=0) + 1
    name = attempt_name(goal.job.metadata.name, goal.uid, task, number)
    attempt = Attempt(number=number, task=task, token=number, name=name, placed_at=written(now), placement=placement)
    status.attempts.append(attempt)
    status.template = goal.template
    status.placement = placement
    status.phase = Phase.STARTING if status.phase is not Phase.RUNNING else status.phase
    status.started_at = status.started_at or written(now)
    status.message, status.expected_start = "", None
    for each in status.tasks:
        if each.name == task:
            each.phase, each.owed_since = Phase.STARTING, None
    return attempt


def record_owed(status: JobStatus, asks: Iterable[str], decided: Decided) -> None:
    """Write into the status since when victims make room for a waiting task, so that the next leader serves it first too."""
    for task in status.tasks:
        known = decided.tasks.get(task.name) if task.name in asks else None
        if known is not None and known.owed_since is not None and task.owed_since is None:
            task.owed_since = written(datetime.fromtimestamp(known.owed_since, UTC))


def word(status: JobStatus, asks: Mapping[str, Ask], decided: Decided, stored_message: str, now: datetime) -> datetime | None:
    """Write into the status why tasks wait and when the first is predicted to start, at most twice a minute.

    Returns the time of the last such message. None: the status has another message, and the next reason is written at once.
    """
    verdicts = {task: found for task, ask in asks.items() if (found := _verdict(decided.tasks.get(task), ask)) is not None}
    if status.phase is not Phase.QUEUED or not verdicts:
        return None
    starts = [verdict.starts for verdict in verdicts.values() if verdict.starts is not None]
    is_news = status.expected_start is None and bool(starts)
    last = decided.worded_at
    if last is not None and stored_message and not is_news and abs((now - last).total_seconds()) <= _MESSAGE_EVERY_S:
        status.message = stored_message
        return last
    status.message = "; ".join(f"{task}: {verdict.reason}" for task, verdict in verdicts.items())
    _record_reasons(status, verdicts, now)
    first = min(starts, default=None)
    status.expected_start = written(datetime.fromtimestamp(first, UTC)) if first is not None and first < _FAR else None
    return now


def _record_reasons(status: JobStatus, verdicts: Mapping[str, Verdict], now: datetime) -> None:
    """Add the reasons of tasks that wait for another reason than before. Numbers in them change all the time, and make no other reason.

    The first `_MOST_REASONS` of a task stay; the last of them is replaced, unless an attempt has followed it: what is told of a wait that
    is over does not change any more.
    """
    for task in status.tasks:
        verdict = verdicts.get(task.name)
        if verdict is None:
            continue
        reason = Reason(at=written(now), reason=shortened(verdict.reason, _LONGEST_REASON))
        placed = max((attempt.placed_at or "" for attempt in status.attempts if attempt.task == task.name), default="")
        last = task.waits[-1] if task.waits else None
        waits_on = last is not None and last.at >= placed
        if last is not None and waits_on and _NUMBERS.sub("", last.reason) == _NUMBERS.sub("", reason.reason):
            continue
        if len(task.waits) < _MOST_REASONS:
            task.waits = [*task.waits, reason]
        elif waits_on:
            task.waits = [*task.waits[:-1], reason]


def _verdict(known: TaskRecord | None, ask: Ask) -> Verdict | None:
    """The verdict on a task, if its ask has not changed since."""
    return known.verdict if known is not None and known.ask == ask else None
