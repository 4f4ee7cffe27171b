"""Reads run history for the API, from threads of its own: a database that is slow or away holds up its readers alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from tuneyard.api import TuneyardError
from tuneyard.cluster.history_api import HISTORY_GROUP, PAST_JOB, HistoryQuery, plain
from tuneyard.tracking.history import History
from tuneyard.tracking.past import JobFilter, PastJob
from tuneyard_operators.history.gone import gone_job
from tuneyard_operators.history.threads import Threads
from tuneyard_operators.kube import NAMESPACE, Connection, Missing
from tuneyard_operators.logs.problems import Problem

T = TypeVar("T")
ANSWER_S = 20.0
_THREADS = 4
_MOST_AT_ONCE = 16
_A_MONTH = timedelta(days=31)
_LONGEST = timedelta(days=366 * 5)
_FOR_EVER = ("", "default")
"""All namespaces, and the one that no API server lets anyone remove."""
Row = dict[str, Any]


class HistoryReader:
    """Queries about the jobs of this hub alone: others may share its database, and their namespaces are not its."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self._url = url
        self._threads = Threads("tuneyard-history-reader", _THREADS)
        self._history: History | None = None
        self._hub = ""
        self._at_once = 0

    async def page(self, namespace: str, query: HistoryQuery) -> tuple[list[Row], str]:
        """Jobs of a page, and where the next one begins. Raises Problem, BadInput."""
        wanted = await self._wanted(namespace, query)
        page = await self._ask(lambda history: history.page(wanted, query.limit, query.after))
        return [_told(job) for job in page.jobs], page.after

    async def job(self, namespace: str, name: str) -> Row:
        """One job with its spec and attempts, by name (the newest) or id. Raises Problem (404)."""
        wanted = await self._wanted(namespace, HistoryQuery())
        return await self._ask(partial(_job, name=name, wanted=wanted))

    async def gone(self, namespace: str, name: str, uid: str) -> Row | None:
        """A job whose JobSpec is gone, as a JobSpec as far as it is on record; None if there is none. Raises Problem, ApiError."""
        wanted = await self._wanted(namespace, HistoryQuery())
        return await self._ask(partial(gone_job, name=name, uid=uid, wanted=wanted))

    async def training_runs(self, namespace: str, query: HistoryQuery) -> tuple[list[Row], str]:
        """Ended train attempts of a page, and where the next one begins. Raises Problem, BadInput."""
        wanted = await self._wanted(namespace, query)
        runs, after = await self._ask(lambda history: history.training_page(wanted, query.limit, query.after))
        return plain(runs), after

    async def usage(self, namespace: str, query: HistoryQuery) -> Row:
        """GPU-hours and cost of a period: by default, of the last 31 days by team and SKU. Raises Problem (400)."""
        wanted = await self._wanted(namespace, query)
        now = datetime.now(UTC)
        until = min(query.until or now, now)
        since = query.since or until - _A_MONTH
        if until - since > _LONGEST:
            raise Problem(400, f"usage is summed over at most {_LONGEST.days} days")
        by: Any = query.by or ("team", "sku")
        rows = await self._ask(lambda history: history.usage(since, until, by, wanted))
        return {"since": plain(since), "until": plain(until), "by": list(by), "rows": rows}

    async def _wanted(self, namespace: str, query: HistoryQuery) -> JobFilter:
        """Jobs that the query means. A namespace may have been removed and made anew for others: older jobs are none of it."""
        if not self._hub:
            self._hub = str((await self._connection.get(NAMESPACE, None, "kube-system"))["metadata"]["uid"])
        texts: dict[str, Any] = {name: getattr(query, name) or None for name in ("team", "user", "status", "origin")}
        return JobFilter.asked(
            query.name or None,
            hub=self._hub,
            namespace=namespace or None,
            since=query.since,
            until=query.until,
            made_since=await self._made(namespace) if namespace not in _FOR_EVER else None,
            **texts,
        )

    async def _made(self, namespace: str) -> datetime:
        """When the namespace was created. One that is gone has no jobs, since a right on it is kept for seconds (`logs.permissions`)."""
        try:
            return datetime.fromisoformat((await self._connection.get(NAMESPACE, None, namespace))["metadata"]["creationTimestamp"])
        except Missing:
            return datetime.now(UTC)

    async def _ask(self, question: Callable[[History], T]) -> T:
        if self._at_once >= _MOST_AT_ONCE:
            raise Problem(429, f"the hub already answers {self._at_once} questions about history", retry_after_s=1)
        self._at_once += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._threads.run(partial(self._answer, question))
        except TimeoutError:
            raise Problem(503, f"run history has not answered within {ANSWER_S:g} s") from None
        except (SQLAlchemyError, TuneyardError) as error:
            if isinstance(error, TuneyardError) and error.exit_code == 2:
                raise Problem(400, error.cause) from error
            raise Problem(503, f"run history cannot be read: {_reason(error)}") from error
        finally:
            self._at_once -= 1

    def _answer(self, question: Callable[[History], T]) -> T:
        if self._history is None:
            self._history = History.open(self._url)
        return question(self._history)


def _job(history: History, name: str, wanted: JobFilter) -> Row:
    found = history.find(name, wanted)
    if found is None:
        kind = HISTORY_GROUP, PAST_JOB.plural
        raise Problem(404, f'{kind[1]}.{kind[0]} "{name}" not found', name=name, kind=kind)
    told: Row = plain(history.detail(found))
    return told


def _told(job: PastJob) -> Row:
    row: Row = plain(asdict(job))
    return row


def _reason(error: Exception) -> str:
    from tuneyard_operators.history.writer import reason_of

    return reason_of(error)
