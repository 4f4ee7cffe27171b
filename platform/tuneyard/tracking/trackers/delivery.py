"""Delivery of a job's events to its trackers, each from a thread of its own: a lost or hanging server neither slows nor ends the job.

A thread opens its tracker, hands it what `measurements` makes of each event, flushes it every few seconds, and ends it with the job.
Connecting to an absent server takes Comet most of a minute. Events wait meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from tuneyard.api import JobSpec
from tuneyard.api.secrets import redact
from tuneyard.tracking.events import Event, Step
from tuneyard.tracking.sink import Warnings
from tuneyard.tracking.trackers.measurements import Metrics, Note, Parameters, Told, parameters_of, told
from tuneyard.tracking.trackers.table import Asked
from tuneyard.tracking.trackers.tracker import TrackedRun, Tracker

END_LIMIT_S = 90.0
"""Seconds that the end of a job waits for its trackers to take the last metrics, or to give up their servers."""
FLUSH_S = 2.0
KEEP_S = 60.0
_KEEP_SHARE = 0.05
"""Share of a thread's time that may go to copies of files, beyond one every KEEP_S."""
MOST_WAITING = 50_000
"""Events that wait for a tracker; steps that come after them are dropped."""

KeepFile = Callable[[str, bytes], None]
"""Writes a file of a tracker to a path below the job's output."""


@dataclass(frozen=True)
class _End:
    status: str
    message: str


class Trackers:
    """The trackers of one job, as one sink."""

    def __init__(self, job: JobSpec, asked: Sequence[Asked], folder: Path, keep: KeepFile | None, warnings: Warnings) -> None:
        self._deliveries = [_Delivery(job, each, folder, keep, warnings) for each in asked]

    def record(self, event: Event) -> None:
        for delivery in self._deliveries:
            delivery.take(event)

    def close(self, status: str, message: str) -> None:
        """All trackers end side by side, within END_LIMIT_S."""
        for delivery in self._deliveries:
            delivery.end(status, message)
        limit = time.monotonic() + END_LIMIT_S
        for delivery in self._deliveries:
            delivery.wait(limit)


class _Delivery:
    """One tracker, and the events that wait for it."""

    def __init__(self, job: JobSpec, asked: Asked, folder: Path, keep: KeepFile | None, warnings: Warnings) -> None:
        self._job = job
        self._asked = asked
        self._title = asked.kind.title
        self._folder = folder / asked.name
        self._files = _Files(self._folder, keep)
        self._warnings = warnings
        self._waiting: SimpleQueue[Event | _End] = SimpleQueue()
        self._over = False
        # A daemon: the process ends even while a server hangs.
        self._thread = Thread(target=self._run, name=f"tuneyard-{asked.name}", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        if self._over:
            return
        if isinstance(event, Step) and self._waiting.qsize() >= MOST_WAITING:
            self._warn("dropped", f"{self._title} is too slow: it misses steps; the report has them all")
        else:
            self._waiting.put(event)

    def end(self, status: str, message: str) -> None:
        self._waiting.put(_End(status, redact(message)))

    def wait(self, limit: float) -> None:
        """Until the tracker has ended, or `limit` of the monotonic clock."""
        self._thread.join(max(0.0, limit - time.monotonic()))
        if self._thread.is_alive():
            self._warn("slow", f"{self._title} did not take all metrics within {END_LIMIT_S:.0f} s; the report has them all")

    def _run(self) -> None:
        try:
            tracker = self._asked.kind.open(self._asked.settings, self._tracked())
        except Exception as error:  # noqa: BLE001 -- clients raise whatever their network and server code raises
            self._over = True
            self._warn("lost", f"{self._title} gets no metrics: {_reason(error)}. The job goes on; the report has them all")
            return
        self._tell(tracker, parameters_of(self._job))
        end = self._deliver(tracker)
        if end.message:
            self._tell(tracker, Note("message", end.message))
        self._try(lambda: tracker.end(end.status))
        self._try(self._files.keep)

    def _tracked(self) -> TrackedRun:
        job = self._job
        return TrackedRun(job.metadata.name, job.team, self._folder, lambda message: self._warn("offline", redact(message)))

    def _deliver(self, tracker: Tracker) -> _End:
        flushed = time.monotonic()
        while True:
            try:
                event = self._waiting.get(timeout=FLUSH_S)
            except Empty:
                event = None
            if isinstance(event, _End):
                return event
            for each in told(event) if event is not None else ():
                self._tell(tracker, each)
            if time.monotonic() - flushed >= FLUSH_S:
                self._try(tracker.flush)
                self._try(self._files.keep_at_times)
                flushed = time.monotonic()

    def _tell(self, tracker: Tracker, what: Told) -> None:
        match what:
            case Metrics(values, axis, step):
                self._try(lambda: tracker.metrics(values, axis=axis, step=step))
            case Parameters(values):
                self._try(lambda: tracker.parameters(values))
            case Note(name, text):
                self._try(lambda: tracker.note(name, text))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 -- as above; the next call may succeed
            self._warn("some", f"{self._title} misses metrics: {_reason(error)}. The job goes on; the report has them all")

    def _warn(self, kind: str, message: str) -> None:
        self._warnings.add(f"{self._asked.name}-{kind}", message)


def _reason(error: Exception) -> str:
    return redact(str(error).strip() or type(error).__name__).splitlines()[0]


class _Files:
    """A tracker's local files, and their copies below an output that is not on this machine."""

    def __init__(self, folder: Path, keep: KeepFile | None) -> None:
        self._folder = folder
        self._keep = keep
        self._kept: dict[Path, tuple[int, int]] = {}
        self._next = time.monotonic() + KEEP_S

    def keep_at_times(self) -> None:
        """Copy the files that have changed, if it is time. A killed process loses what it wrote since."""
        if time.monotonic() < self._next:
            return
        began = time.monotonic()
        try:
            self.keep()
        finally:
            took = time.monotonic() - began
            self._next = time.monotonic() + max(KEEP_S, took / _KEEP_SHARE)

    def keep(self) -> None:
        """Copy the files that have changed since they were copied."""
        if self._keep is None:
            return
        for file in self._walk():
            state = file.stat()
            mark = (state.st_size, state.st_mtime_ns)
            if self._kept.get(file) != mark:
                self._keep(f"{self._folder.name}/{file.relative_to(self._folder)}", file.read_bytes())
                self._kept[file] = mark

    def _walk(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self._folder):
            yield from (path for name in sorted(names) if not (path := Path(folder, name)).is_symlink())
