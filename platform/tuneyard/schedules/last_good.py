"""The last good run, which later runs are compared with, and how a run is told about it.

A run reads the rows of that run when it ends, and reports the change of each figure with its interval
(`tuneyard.runtime.score.comparing`). Two annotations of its JobSpec say where these rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuneyard.api.schedule_status import ScheduledRun

LAST_GOOD = "tuneyard.dev/last-good-run"
LAST_GOOD_OUTPUT = "tuneyard.dev/last-good-output"
IS_MEASURE = ("good", "accepted")
"""Verdicts of runs that later runs are compared with."""


@dataclass(frozen=True)
class LastGood:
    """The name of a run, and the URI of its output."""

    run: str
    output: str

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> LastGood | None:
        """What the annotations of a JobSpec say; None: nothing."""
        run, output = annotations.get(LAST_GOOD, ""), annotations.get(LAST_GOOD_OUTPUT, "")
        return cls(run, output) if run and output else None

    @property
    def annotations(self) -> dict[str, str]:
        return {LAST_GOOD: self.run, LAST_GOOD_OUTPUT: self.output}


def measure_before(records: Iterable[ScheduledRun], due: str) -> ScheduledRun | None:
    """The run that was good, or accepted, and was due last before `due`."""
    return max((each for each in records if each.verdict in IS_MEASURE and each.due < due), key=lambda each: each.due, default=None)


def measure_after(records: Iterable[ScheduledRun], due: str) -> ScheduledRun | None:
    """The run that was good, or accepted, and was due last, where it was due after `due`."""
    return max((each for each in records if each.verdict in IS_MEASURE and each.due > due), key=lambda each: each.due, default=None)


def last_good(records: Iterable[ScheduledRun], due: str) -> LastGood | None:
    """The run that one which is due at `due` is compared with, where its output is known."""
    found = measure_before(records, due)
    return LastGood(found.name, found.output) if found is not None and found.output else None
