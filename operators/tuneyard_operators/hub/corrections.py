"""Corrects guessed durations by the durations of the same team's ended tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import JobStatus
from tuneyard.federation import Ask, Guesses, taken_by
from tuneyard_operators.hub.records import JobRecord


class Corrections:
    """`enabled`: whether the policy corrects guesses."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._guesses = Guesses()

    def learn(self, record: JobRecord, spec: Mapping[str, Any], status: JobStatus) -> str | None:
        """Learn from the durations of a job's ended tasks. Returns the team if its correction has changed."""
        if not self._enabled:
            return None
        team = str(spec.get("team") or record.key[0])
        moved = False
        for taken in taken_by(status):
            if taken.task not in record.demand.taught:
                record.demand.taught |= {taken.task}
                moved |= self._guesses.learn((record.name, taken.task), team, taken.guessed_s, taken.took_s, taken.ended)
        return team if moved else None

    def forget(self, record: JobRecord) -> None:
        """Forget the durations of a deleted job's tasks."""
        for task in record.demand.taught:
            self._guesses.forget((record.name, task))
        record.demand.taught = frozenset()

    def corrected(self, ask: Ask) -> Ask:
        """The ask with its guessed duration corrected; the ask itself if its duration is not a guess."""
        return self._guesses.corrected(ask) if self._enabled else ask
