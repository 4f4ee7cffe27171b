"""Predicts durations by ended tasks: guesses by those of the same team, and the run of a Schedule by its latest runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import JobStatus
from tuneyard.federation import SCHEDULE_LABEL, Ask, Guesses, Repeats, series_of, spent_by, taken_by
from tuneyard_operators.hub.records import JobRecord


class Corrections:
    """`enabled`: whether the policy corrects guesses."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._guesses = Guesses()
        self._repeats = Repeats()

    def learn(self, record: JobRecord, spec: Mapping[str, Any], status: JobStatus, labels: Mapping[str, str]) -> str | None:
        """Learn from the durations of a job's ended tasks. Returns the team if a prediction for its asks has changed."""
        team = str(spec.get("team") or record.key[0])
        moved = self._learn_repeats(record, status, str(labels.get(SCHEDULE_LABEL) or ""))
        if not self._enabled:
            return team if moved else None
        for taken in taken_by(status):
            if taken.task not in record.demand.taught:
                record.demand.taught |= {taken.task}
                moved |= self._guesses.learn((record.name, taken.task), team, taken.guessed_s, taken.took_s, taken.ended)
        return team if moved else None

    def _learn_repeats(self, record: JobRecord, status: JobStatus, schedule: str) -> bool:
        """Learn the time of a run of a Schedule. True: runs of this Schedule have another prediction now."""
        if not schedule:
            return False
        found = [
            self._repeats.learn((record.name, task), series_of(record.key[0], schedule, task), seconds, ended)
            for task, seconds, ended in spent_by(status)
        ]
        record.demand.repeated |= {task for task, _, _ in spent_by(status)}
        return any(found)

    def forget(self, record: JobRecord) -> None:
        """Forget the durations of a deleted job's tasks."""
        for task in record.demand.taught:
            self._guesses.forget((record.name, task))
        for task in record.demand.repeated:
            self._repeats.forget((record.name, task))
        record.demand.taught = record.demand.repeated = frozenset()

    def corrected(self, ask: Ask) -> Ask:
        """The ask with its guessed duration corrected, or with that of the latest runs of its Schedule; else the ask itself."""
        return self._repeats.expected(self._guesses.corrected(ask) if self._enabled else ask)
