"""Sends the spans of jobs, in the order in which it happens.

1. *Hear.* A change of a JobSpec that may end a span puts its key into the queue, at most once.
2. *Make spans.* `job_spans` makes all spans of the job from the hub's cache. Those that have ended and were not sent are kept.
3. *Send.* One thread sends a batch. A receiver that is away or slow holds up that thread alone: the keys wait, and nothing of a job does.
4. *Let go.* A deleted JobSpec waits for its last spans for at most `HOLD_S`.

Nothing of this is stored. A new hub sends the spans of all jobs that have not ended, and of those that ended in the last hour, once more:
the same spans with the same ids. What a killed hub had not sent is among them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tuneyard.api import Attempt, JobStatus
from tuneyard.api.moments import moment_of
from tuneyard.tracing import Exporter, Span, is_over, job_spans
from tuneyard.tracing.export import BATCH
from tuneyard_operators.history.jobs import Jobs
from tuneyard_operators.history.threads import Threads
from tuneyard_operators.kube import Key
from tuneyard_operators.metrics import Sample, families
from tuneyard_operators.tracing.metrics import TracingMetrics

log = logging.getLogger(__name__)
HOLD_S = 10.0
AGAIN = timedelta(hours=1)
"""Jobs that ended longer ago are not sent again by a new hub."""
_GATHER_S = 1.0
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_MOST_JOBS = 20
Object = Mapping[str, Any]
Signature = tuple[object, ...]


class TraceSender:
    """`look_at`: called with a deleted job whose spans are sent now. `open_exporter`: makes the exporter, in the sender's thread."""

    def __init__(
        self, jobs: Jobs, open_exporter: Callable[[], Exporter | None], metrics: TracingMetrics, look_at: Callable[[Key], None]
    ) -> None:
        self._jobs = jobs
        self._open_exporter = open_exporter
        self._metrics = metrics
        self._look_at = look_at
        self._due: dict[Key, None] = {}
        self._heard: dict[Key, Signature] = {}
        self._sent: dict[Key, frozenset[int]] = {}
        self._held: dict[Key, float] = {}
        self._news = asyncio.Event()
        self._thread = Threads("tuneyard-traces")
        self._exporter: Exporter | None = None
        self._at_once = _MOST_JOBS
        self._trouble = ""
        self._began = datetime.now(UTC)

    def hear(self, key: Key, status: JobStatus | None) -> None:
        """A JobSpec has changed; None: it is gone. Never waits."""
        if status is None:
            for each in (self._due, self._heard, self._sent, self._held):
                each.pop(key, None)
            return
        signature = _signature(self._jobs.items[key], status)
        if self._heard.get(key) == signature:
            return
        is_first, self._heard[key] = key not in self._heard, signature
        if is_first and _ended_before(status, self._began - AGAIN):
            return
        self._due[key] = None
        self._news.set()

    def may_vanish(self, key: Key) -> bool:
        """Whether a JobSpec that is deleted has its spans sent, or has waited for that long enough."""
        if key not in self._due:
            return True
        return _now_s() - self._held.setdefault(key, _now_s()) > HOLD_S

    def series(self) -> Iterator[Sample]:
        """What is not sent yet."""
        yield families.TRACE_WAITING, (), len(self._due)

    async def run(self) -> None:
        """Send until cancelled, through every error of the receiver."""
        await self._jobs.synced.wait()
        pause_s = _LEAST_PAUSE_S
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                await asyncio.sleep(_GATHER_S)
                while self._due:
                    if await self._send_due():
                        pause_s = _LEAST_PAUSE_S
                    else:
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            if self._exporter is not None:
                self._exporter.close()  # a request under way is not tried again
            self._thread.close()

    async def _send_due(self) -> bool:
        """Send the spans of the jobs that wait longest. False if the receiver did not take them."""
        keys = [key for key, _ in zip(self._due, range(self._at_once), strict=False)]
        await asyncio.sleep(0)  # spans of many jobs are no reason to hold up the hub
        news = {key: self._unsent(key) for key in keys if key in self._jobs.items}
        heard = {key: self._heard.get(key) for key in news}
        spans = [span for each in news.values() for span in each]
        if spans and not await self._sent_all(spans):
            self._at_once = 1  # should the receiver refuse a span of one job for good, the others pass it
            for key in keys:
                if self._due.pop(key, 0) is None:
                    self._due[key] = None
            return False
        self._at_once = min(2 * self._at_once, _MOST_JOBS)
        for key in keys:
            if key not in self._heard:
                self._due.pop(key, None)
                continue
            self._sent[key] = self._sent.get(key, frozenset()) | {span.id for span in news.get(key, ())}
            if key in news and self._is_over(key) and self._heard.get(key) == heard.get(key):
                self._sent.pop(key)  # nothing of it changes any more
            if self._heard.get(key) == heard.get(key):
                self._due.pop(key, None)
                if self._held.pop(key, None) is not None:
                    self._look_at(key)
        return True

    def _is_over(self, key: Key) -> bool:
        return key in self._jobs.items and is_over(self._jobs.items[key]["metadata"], self._jobs.status(key))

    def _unsent(self, key: Key) -> list[Span]:
        item = self._jobs.items[key]
        try:
            spans = job_spans(item, self._jobs.status(key))
        except Exception:  # one broken object must not stop the others
            log.exception("the spans of %s/%s cannot be made", *key)
            return []
        sent = self._sent.get(key, frozenset())
        return [span for span in spans if span.end is not None and span.id not in sent]

    async def _sent_all(self, spans: list[Span]) -> bool:
        try:
            if self._exporter is None:
                self._exporter = await self._thread.run(self._open_exporter)
            if self._exporter is None:
                return True
            for first in range(0, len(spans), BATCH):
                batch = spans[first : first + BATCH]
                reason = await self._thread.run(partial(self._exporter.send, batch))
                if reason:
                    self._explain(reason)
                    return False
                self._metrics.spans.inc(len(batch))
        except Exception as error:  # noqa: BLE001 - the hub goes on without traces, and tries again
            self._explain(f"{type(error).__name__}: {error}")
            return False
        self._trouble = ""
        return True

    def _explain(self, reason: str) -> None:
        self._metrics.failures.inc()
        if reason != self._trouble:
            log.warning("traces are not sent for now: %s; they are tried again, and jobs go on", reason)
        self._trouble = reason


def _signature(item: Object, status: JobStatus) -> Signature:
    """What can end a span of a job."""
    if status.phase.final and is_over(item["metadata"], status):
        return item["metadata"]["uid"], status.phase, status.finished_at
    attempts = tuple((each.number, each.phase, each.ended_at, len(each.stages), _newest(each)) for each in status.attempts)
    return item["metadata"]["uid"], "deletionTimestamp" in item["metadata"], status.phase, attempts


def _newest(attempt: Attempt) -> str | None:
    return attempt.stages[-1].began_at if attempt.stages else None


def _ended_before(status: JobStatus, moment: datetime) -> bool:
    return bool(status.phase.final and status.finished_at and moment_of(status.finished_at) < moment)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
