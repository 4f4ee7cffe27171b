"""The choice of logs of a job, by task, attempt and source. Pure. Errors name the possible values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.api import Attempt, BadInput
from tuneyard.api.loading_reasons import nearest
from tuneyard.cluster import HubJob


@dataclass(frozen=True)
class LogChoice:
    """The wanted logs. None: no restriction. `everything`: all attempts of all tasks that match the other fields."""

    task: str | None = None
    attempt: int | None = None
    source: str | None = None
    rank: int | None = None
    everything: bool = False

    @property
    def one_source(self) -> bool:
        return self.source is not None or self.rank is not None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of the wanted sources; empty: all."""
        if self.source is not None:
            return (self.source,)
        return (f"rank-{self.rank}", f"engine-{self.rank}") if self.rank is not None else ()

    def attempts(self, job: HubJob) -> list[Attempt]:
        """The attempts to show, the oldest first: the running ones, else the last one. Empty before the first attempt.

        Raises BadInput for an unknown task or attempt.
        """
        found = sorted(job.status.attempts, key=lambda attempt: attempt.number)
        if self.task is not None:
            names = [task.name for task in job.tasks]
            if self.task not in names:
                raise BadInput(f"{job.label} has no task {self.task!r}", _one_of(self.task, names))
            found = [attempt for attempt in found if attempt.task == self.task]
        if self.attempt is not None:
            numbers = [str(attempt.number) for attempt in found]
            found = [attempt for attempt in found if attempt.number == self.attempt]
            if not found:
                of = f"task {self.task} of {job.label}" if self.task else job.label
                raise BadInput(f"{of} has no attempt {self.attempt}", f"it has: {', '.join(numbers) or 'none yet'}")
        if self.everything or not found:
            return found
        return [attempt for attempt in found if not attempt.ended_at and not attempt.phase.final] or found[-1:]

    def sources(self, there: Sequence[str]) -> list[str]:
        """The wanted sources among the sources of one attempt. A rank of a score task is an engine."""
        return [source for source in self.wanted if source in there] if self.one_source else list(there)

    def missing(self, there: Sequence[str]) -> BadInput:
        """The error for a source that this attempt does not have."""
        if self.source is not None:
            return BadInput(f"{self.source} has printed nothing in this attempt", _one_of(self.source, there))
        return BadInput(f"rank {self.rank} has printed nothing in this attempt", f"there are: {', '.join(there)}")


def _one_of(wanted: str, known: Sequence[str]) -> str:
    best = nearest(wanted, known)
    return f"did you mean {best}?" if best else f"there are: {', '.join(known) or 'none yet'}"
