"""What was decided about a job, put into its status: attempts that are to start, attempts that are to go, and why the rest wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tuneyard.api import Attempt, JobStatus, Phase, PlacementStatus
from tuneyard.federation import Place
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.lifecycle import Action, Goal, Outcome, Verb
from tuneyard_operators.hub.placing import Placing, Verdict
from tuneyard_operators.kube import Key
from tuneyard_operators.rendering import attempt_name

_FAR = datetime(2900, 1, 1, tzinfo=UTC).timestamp()
"""A start predicted for later than this is none."""
_MESSAGE_EVERY_S = 30.0
"""Reasons for waiting change with every job that ends: they are written no more often than this."""


class Recording:
    """`recorded`: a decision as a status holds it."""

    def __init__(self, placing: Placing, recorded: Callable[[Place], PlacementStatus]) -> None:
        self._placing = placing
        self._recorded = recorded
        self._worded: dict[Key, float] = {}

    def record(self, key: Key, goal: Goal, outcome: Outcome, stored_message: str, now: datetime) -> Outcome:
        """The outcome with what was decided for this job, and what is to be done for that once it is stored."""
        status = outcome.status
        self._owe(key, status)
        going = self._tell(key, status, now)
        starting = [self._start(goal, task, place, status, now) for task, place in self._placing.decided.get(key, {}).items()]
        verdicts = self._placing.verdicts.get(key, {})
        if status.phase is Phase.QUEUED and verdicts:
            self._word(key, status, verdicts, stored_message)
        else:  # what its status says now is not why it waits
            self._worded.pop(key, None)
        return Outcome(status=status, actions=(*outcome.actions, *going, *starting), look_again_s=outcome.look_again_s, ready=outcome.ready)

    def forget(self, key: Key) -> None:
        self._worded.pop(key, None)

    def _tell(self, key: Key, status: JobStatus, now: datetime) -> list[Action]:
        """Attempts that are to make room get their notice."""
        actions = []
        for attempt in status.attempts:
            reason = self._placing.going.get(key, {}).get(attempt.number)
            if reason and not attempt.stopping and attempt.ended_at is None:
                attempt.stopping, attempt.stop_asked_at, attempt.stopped_for = "Preempted", written(now), reason
                actions.append(Action(Verb.STOP, attempt))
        return actions

    def _owe(self, key: Key, status: JobStatus) -> None:
        """Tasks for which others were asked to make room, so that the next leader looks at them first too."""
        owed = self._placing.owed.get(key, {})
        for task in status.tasks:
            if task.name in owed and task.owed_since is None:
                task.owed_since = written(datetime.fromtimestamp(owed[task.name], UTC))

    def _start(self, goal: Goal, task: str, place: Place, status: JobStatus, now: datetime) -> Action:
        number = max((attempt.number for attempt in status.attempts), default=0) + 1
        name = attempt_name(goal.job.metadata.name, goal.uid, task, number)
        placement = self._recorded(place)
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
        return Action(Verb.START, attempt)

    def _word(self, key: Key, status: JobStatus, verdicts: Mapping[str, Verdict], stored: str) -> None:
        """Say why it waits, and until when by what is predicted; not at every change of it."""
        last = self._worded.get(key)
        is_news = status.expected_start is None and any(verdict.starts is not None for verdict in verdicts.values())
        if last is not None and stored and not is_news and time.monotonic() - last <= _MESSAGE_EVERY_S:
            status.message = stored
            return
        self._worded[key] = time.monotonic()
        status.message = "; ".join(f"{task}: {verdict.reason}" for task, verdict in verdicts.items())
        starts = min((verdict.starts for verdict in verdicts.values() if verdict.starts is not None), default=None)
        status.expected_start = written(datetime.fromtimestamp(starts, UTC)) if starts is not None and starts < _FAR else None
