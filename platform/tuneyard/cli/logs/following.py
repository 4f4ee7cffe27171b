"""Following the logs of a job, from attempt to attempt and from task to task, to the job's end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from tuneyard.api import Attempt, StorageError
from tuneyard.cli.logs.choice import LogChoice
from tuneyard.cluster import Hub, HubError, HubJob, Missing
from tuneyard.tracking.task_logs import AttemptLogs

_EVERY_S = 2.0
_QUIET_ROUNDS = 2
"""The last lines of a rank may come shortly after the hub knows of its end."""

Print = Callable[[Attempt, str, str], None]
"""Called with attempt, source and whole lines."""


class LogFollower:
    """`reader`: opens the logs of one attempt. `say`: gets the message of each outage once."""

    def __init__(self, choice: LogChoice, reader: Callable[[Attempt], AttemptLogs], show: Print, say: Callable[[str], None]) -> None:
        self._choice = choice
        self._reader = reader
        self._show = show
        self._say = say
        self._cursors: dict[int, Mapping[str, int]] = {}
        self._drained: set[int] = set()
        self._trouble = ""
        self._gone = False

    def run(self, hub: Hub, job: HubJob) -> HubJob:
        """Show old and new lines, to the end of the job or of the chosen attempt. Returns the last state of the job.

        Raises StorageError or HubError for an outage at the start. A later outage is waited for.
        """
        self._round(job)
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            time.sleep(_EVERY_S)
            job = self._again(hub, job)
            try:
                shown = self._round(job)
                self._trouble = ""
            except Missing:
                self._gone, shown = True, False
                self._tell(f"{job.label} was deleted, and the hub no longer reads its logs; they stay in {job.output}")
            except (StorageError, HubError) as error:
                self._tell(f"{error.cause}; trying again")
                shown = not self._gone
            quiet = quiet + 1 if self._over(job) and not shown else 0
        return job

    def _over(self, job: HubJob) -> bool:
        asked_for = self._choice.attempts(job) if self._choice.attempt is not None else []
        return self._gone or job.ended or (bool(asked_for) and all(attempt.ended_at for attempt in asked_for))

    def _round(self, job: HubJob) -> bool:
        """Show the new lines. True if there were any."""
        shown = [self._attempt(attempt) for attempt in self._worth_a_look(job)]  # a list: `any` over a generator would skip attempts
        return any(shown)

    def _worth_a_look(self, job: HubJob) -> Iterable[Attempt]:
        """The chosen attempts, and the attempts that are shown in part."""
        chosen = {attempt.number for attempt in self._choice.attempts(job)} | set(self._cursors)
        return [attempt for attempt in job.status.attempts if attempt.number in chosen - self._drained]

    def _attempt(self, attempt: Attempt) -> bool:
        reader = self._reader(attempt)
        shown, more = False, True
        while more:
            news = reader.news(self._choice.wanted, self._cursors.get(attempt.number, {}))
            self._cursors[attempt.number] = news.cursors
            for source, text in news.parts.items():
                self._show(attempt, source, text)
            shown, more = shown or bool(news.parts), news.more and bool(news.parts)
        if attempt.cleaned and not shown:
            self._drained.add(attempt.number)  # its pods are gone and write no more lines
        return shown

    def _again(self, hub: Hub, job: HubJob) -> HubJob:
        try:
            found = hub.job(job.name, job.namespace)
            self._gone = found.uid != job.uid  # another job of its name: none of its logs belong here
            return job if self._gone else found
        except Missing:
            self._gone = True  # deleted: its logs still exist
            return job
        except HubError as error:
            self._tell(f"{error.cause}; continuing with the job's last known state")
            return job

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._say(trouble)
