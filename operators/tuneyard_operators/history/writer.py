"""Writes run history from JobSpecs, in the order in which it happens.

1. *Hear.* Each change of a JobSpec that history records puts its key into `Pending`, at most once.
2. *Read.* A batch of keys is read from the hub's cache: the JobSpec as it is now, however often it has changed.
3. *Make rows.* `rows_of` makes all rows of a job from its status (`rows`). What is on record already (`mark`) is left out.
4. *Write.* One thread writes a batch in one transaction. A database that is away or slow holds up that thread alone: the batch waits.
5. *Let go.* A deleted JobSpec waits for its record (`may_vanish`), for a bounded time.

All state lives in the API server and in the database: a new hub hears of every JobSpec, and writes what is not on record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from tuneyard.api import JobStatus, TuneyardError
from tuneyard.api.moments import moment_of
from tuneyard.api.quantities import parse_duration_s
from tuneyard.api.secrets import redact
from tuneyard.tracking.history import History
from tuneyard.tracking.hub_rows import JobRows
from tuneyard_operators.history.jobs import Jobs
from tuneyard_operators.history.metrics import HistoryMetrics
from tuneyard_operators.history.pending import Pending, Told
from tuneyard_operators.history.rows import Object, job_key, rows_of, signature_of
from tuneyard_operators.history.settings import HistorySettings
from tuneyard_operators.history.threads import Threads
from tuneyard_operators.kube import NAMESPACE, ApiError, Connection, Key
from tuneyard_operators.metrics import Sample, families

log = logging.getLogger(__name__)
_BATCH = 200
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOKS_S = 1.0
_GATHER_S = 0.2
_TIDY_EVERY_S = 3600.0


class HistoryWriter:
    """`look_at`: called with a job that is on record now and may vanish."""

    def __init__(
        self, connection: Connection, jobs: Jobs, settings: HistorySettings, metrics: HistoryMetrics, look_at: Callable[[Key], None]
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._settings = settings
        self._metrics = metrics
        self._look_at = look_at
        self._pending = Pending(settings.paced_s)
        self._held: set[Key] = set()
        self._news = asyncio.Event()
        self._thread = Threads("tuneyard-history")
        self._history: History | None = None
        self._hub = ""
        self._trouble = ""
        self._was_lost = False
        self._tidy_at_s = 0.0
        self._look_for_gone = True

    def hear(self, key: Key, status: JobStatus | None) -> None:
        """A JobSpec has changed; None: it is gone. Never waits."""
        told = None
        if status is not None:
            told = Told(signature_of(self._jobs.items[key], status), any(attempt.ended_at is None for attempt in status.attempts))
        else:
            self._held.discard(key)
        if self._pending.hear(key, told, _now_s()):
            self._news.set()

    def may_vanish(self, key: Key, now: datetime) -> bool:
        """Whether a JobSpec that is deleted, or is to be deleted, is on record or has waited for it long enough."""
        item = self._jobs.items.get(key)
        if item is None:
            return True
        status = self._jobs.status(key)
        if self._pending.is_recorded(key, signature_of(item, status)):
            self._held.discard(key)
            return True
        since = ready_since(item, status)
        if since is not None and (now - since).total_seconds() > self._settings.hold_s:
            log.error("%s/%s vanishes without its record: history has not been written for %g s", *key, self._settings.hold_s)
            self._metrics.failures.labels("let go").inc()
            self._held.discard(key)
            return True
        self._held.add(key)
        return False

    def series(self) -> Iterator[Sample]:
        """What is not on record yet."""
        yield families.HISTORY_LAG, (), self._pending.lag_s(_now_s())
        yield families.HISTORY_WAITING, (), len(self._pending)
        yield families.HISTORY_HELD, (), len(self._held)

    async def run(self) -> None:
        """Write until cancelled, through every error of the database."""
        await self._jobs.synced.wait()
        pause_s = _LEAST_PAUSE_S
        try:
            while True:
                try:
                    await self._open()
                    await self._write_due()
                    await self._tidy()
                    pause_s, self._trouble = _LEAST_PAUSE_S, ""
                    await self._wait()
                except Exception as error:  # noqa: BLE001 - the hub goes on without history, and tries again
                    self._was_lost = self._was_lost or _is_lost(error)
                    self._explain(error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            self._thread.close(self._close)

    def _close(self) -> None:
        if self._history is not None:
            self._history.close()

    async def _wait(self) -> None:
        """Wait for a change, or until the next samples are due; then a moment longer, so that changes share a transaction."""
        if not self._pending.due(_now_s(), 1):
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOKS_S):
                    await self._news.wait()
            except TimeoutError:
                return
        if len(self._pending) < _BATCH:
            await asyncio.sleep(_GATHER_S)

    async def _open(self) -> None:
        if not self._hub:
            self._hub = str((await self._connection.get(NAMESPACE, None, "kube-system"))["metadata"]["uid"])
        if self._was_lost and self._history is not None:
            await self._thread.run(self._history.close)
            self._history = None  # what comes back may be a backup of an earlier schema, or empty
        if self._history is None:
            self._history = await self._thread.run(partial(History.open, self._settings.url))
        if self._was_lost:
            self._pending.doubt(_now_s())
            self._was_lost = False

    async def _write_due(self) -> None:
        keys = [key for key in self._pending.due(_now_s(), _BATCH) if key in self._jobs.items]
        if not keys:
            return
        assert self._history is not None
        read = [(key, self._jobs.items[key], self._jobs.status(key)) for key in keys]
        signatures = {key: signature_of(item, status) for key, item, status in read}
        rows, refused = await self._thread.run(partial(_write, self._history, [(item, status) for _, item, status in read], self._hub))
        self._metrics.rows.inc(rows)
        for reason in refused:
            self._metrics.failures.labels("refused").inc()
            log.error("run history refuses the rows of a job: %s", reason)
        current = {key: signature_of(self._jobs.items[key], self._jobs.status(key)) for key in keys if key in self._jobs.items}
        for key in self._pending.wrote(signatures, _now_s(), current):
            if key in self._held:
                self._look_at(key)

    async def _tidy(self) -> None:
        """One bounded step of upkeep, once all changes are written: retention, and jobs whose JobSpec has vanished without its record."""
        if len(self._pending) or _now_s() < self._tidy_at_s:
            return
        assert self._history is not None
        own = self._settings
        if self._look_for_gone:
            present = {str(item["metadata"]["uid"]) for item in self._jobs.items.values()}
            await self._thread.run(partial(self._history.close_gone, self._hub, present))
            self._look_for_gone = False
        if not await self._thread.run(partial(self._history.tidy, datetime.now(UTC), own.thin_days, own.series_days)):
            self._tidy_at_s, self._look_for_gone = _now_s() + _TIDY_EVERY_S, True

    def _explain(self, error: Exception) -> None:
        kind = "away" if isinstance(error, SQLAlchemyError | TuneyardError | ApiError | OSError) else "error"
        self._metrics.failures.labels(kind).inc()
        reason = reason_of(error)
        if reason == self._trouble:
            return
        self._trouble = reason
        if kind == "error":
            log.error("run history cannot be written", exc_info=error)
        else:
            log.warning("run history is not written for now: %s; it is tried again, and nothing is lost", reason)


def ready_since(item: Object, status: JobStatus) -> datetime | None:
    """When a JobSpec that is to vanish could have: deleted, or past its time to live, and its attempts ended. None: not known."""
    moments = [item["metadata"].get("deletionTimestamp"), *(attempt.ended_at for attempt in status.attempts)]
    found = [moment_of(text) for text in moments if text]
    spec = item.get("spec")
    ttl = spec.get("ttlAfterFinished") if isinstance(spec, Mapping) else None
    if ttl is not None and status.finished_at and not item["metadata"].get("deletionTimestamp"):
        found.append(moment_of(status.finished_at) + timedelta(seconds=parse_duration_s(ttl)))
    return max(found, default=None)


def reason_of(error: Exception) -> str:
    """The first line of an error, without secrets."""
    text = redact(str(getattr(error, "orig", None) or getattr(error, "cause", None) or error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _write(history: History, jobs: Sequence[tuple[Object, JobStatus]], hub: str) -> tuple[int, list[str]]:
    """Write what is not on record yet. Returns the number of rows, and why rows of a job are refused. Raises SQLAlchemyError.

    A refused job keeps none of the others: the batch is written again, job by job.
    """
    known = history.marks([job_key(str(item["metadata"]["uid"])) for item, _ in jobs])
    made, refused = [], []
    for item, status in jobs:
        try:
            rows = rows_of(item, status, hub)
        except Exception as error:  # noqa: BLE001 - one broken object must not stop the others
            refused.append(f"{item['metadata'].get('name')}: {type(error).__name__}: {reason_of(error)}")
            continue
        # The steps of a job that has ended were written with its mark; retention may have removed them since.
        if known.get(rows.job["id"]) != rows.mark or (rows.steps and rows.job["ended_at"] is None):
            made.append(rows)
    now = datetime.now(UTC)
    try:
        history.record(made, now)
        return sum(map(_count, made)), refused
    except Exception as error:
        if not _is_refusal(error):
            raise
    written = 0
    for rows in made:
        try:
            history.record([rows], now)
            written += _count(rows)
        except Exception as error:
            if not _is_refusal(error):
                raise
            refused.append(f"{rows.job['name']}: {reason_of(error)}")
    return written, refused


def _is_refusal(error: Exception) -> bool:
    """Whether the database would refuse these rows every time. A lock, a full disk or a missing right may pass."""
    if isinstance(error, DBAPIError):
        return isinstance(error, DataError | IntegrityError)
    return isinstance(error, StatementError | OverflowError | ValueError | TypeError)


def _is_lost(error: Exception) -> bool:
    """Whether the database itself was away, and not only slow or locked."""
    return isinstance(error, TuneyardError) or (isinstance(error, DBAPIError) and error.connection_invalidated)


def _count(rows: JobRows) -> int:
    return 1 + sum(map(len, (rows.attempts, rows.usage, rows.scores, rows.steps)))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
