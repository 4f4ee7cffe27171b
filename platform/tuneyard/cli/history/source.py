"""Where past jobs come from: the history of this machine, or that of a hub. Both give the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import TypeAdapter, ValidationError

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import nearest
from tuneyard.api.moments import moment_of
from tuneyard.api.quantities import Duration
from tuneyard.cluster import Hub, Missing
from tuneyard.cluster.history_api import HistoryQuery, plain

if TYPE_CHECKING:
    from tuneyard.tracking.past import JobFilter, PastJob

Row = dict[str, Any]
_PAGE = 200
_NAMES_SEARCHED = 500


class Source(Protocol):
    def jobs(self, query: HistoryQuery, limit: int | None) -> Iterator[Row]:
        """Jobs, the newest first; None: all."""

    def job(self, name: str) -> Row:
        """One job with `spec` and `attempts`, by name (the newest) or id. Raises BadInput where there is none."""

    def whole(self, job: Row) -> Row:
        """A job of `jobs` as `job` gives it."""

    def close(self) -> None: ...


class LocalHistory:
    """The history at TUNEYARD_HISTORY_URL, by default that of this machine."""

    def __init__(self) -> None:
        from tuneyard.tracking.history import History

        self._history = History.open()

    def jobs(self, query: HistoryQuery, limit: int | None) -> Iterator[Row]:
        from tuneyard.runtime.liveness import KILLED
        from tuneyard.tracking.past import JobFilter

        texts: dict[str, Any] = {name: getattr(query, name) or None for name in ("team", "user", "status", "origin")}
        if query.status == KILLED:
            texts["status"] = "running"  # as the record of such a run says
        rows = map(_shown, self._pages(JobFilter.asked(query.name or None, since=query.since, until=query.until, **texts)))
        yield from islice((row for row in rows if query.status in ("", row["status"])), limit)

    def _pages(self, wanted: JobFilter) -> Iterator[PastJob]:
        after = ""
        while True:
            page = self._history.page(wanted, _PAGE, after)
            yield from page.jobs
            after = page.after
            if not after:
                return

    def job(self, name: str) -> Row:
        found = self._history.find(name)
        if found is None:
            best = nearest(name, [job.name for job in self._history.jobs(_NAMES_SEARCHED)])
            raise BadInput(
                f"history has no job {name!r}", f"did you mean {best}?" if best else "tuneyard history list shows the jobs there"
            )
        return _shown(found, self._history.detail(found))

    def whole(self, job: Row) -> Row:
        return self.job(job["id"])

    def close(self) -> None:
        self._history.close()


class HubHistory:
    """The history of a hub, by the reader's rights. `everywhere`: jobs of all namespaces."""

    def __init__(self, hub: Hub, everywhere: bool = False) -> None:
        self._past = hub.past
        self._hub = hub.address.hub
        self._own = hub.address.namespace
        self._namespace = "" if everywhere else self._own

    def jobs(self, query: HistoryQuery, limit: int | None) -> Iterator[Row]:
        yield from self._past.list(self._namespace, query, limit)

    def job(self, name: str) -> Row:
        try:
            return self._past.job(self._own, name)
        except Missing:
            best = nearest(name, [job["name"] for job in self._past.list(self._own, HistoryQuery(), _NAMES_SEARCHED)])
            hint = f"did you mean {best}?" if best else "another namespace: -n; tuneyard history list --hub shows the jobs there"
            raise Missing(f"the history of {self._hub} has no job {self._own}/{name}", hint) from None

    def whole(self, job: Row) -> Row:
        return self._past.job(job["namespace"], job["id"])

    def close(self) -> None:
        pass


def _shown(job: PastJob, detail: Mapping[str, Any] | None = None) -> Row:
    """A job as it is shown: a run whose process is gone has ended, though nobody could write that down."""
    from tuneyard.runtime.liveness import KILLED, is_orphaned, say_orphaned

    row: Row = plain(detail or asdict(job))
    if is_orphaned(job.status, job.output):
        row |= {"status": KILLED, "message": say_orphaned(job.output)}
        for attempt in row["attempts"] if detail else ():
            attempt["status"] = KILLED if attempt["status"] == "running" else attempt["status"]
    return row


def training_runs(hub: Hub, everywhere: bool, since: datetime | None) -> list[Row]:
    """Training runs of a hub by the reader's rights, oldest first, as `History.add_training_runs` takes them. The source of a run names the
    hub, the namespace and the member, so that runs of two clusters stay apart.
    """
    rows = hub.past.training_runs("" if everywhere else hub.address.namespace, HistoryQuery(since=since))
    kept = ("settings", "status", "failure", "result")
    return [
        {"source": f"{hub.address.hub}: {row['namespace']} on {row['cluster']}", **{name: row[name] for name in kept}}
        for row in sorted(rows, key=lambda row: (row["started_at"], row["id"]))
    ]


def since_of(text: str | None, now: datetime) -> datetime | None:
    """The moment of `--since`: a duration before `now`, or a date. Raises BadInput."""
    if text is None:
        return None
    try:
        return now - timedelta(seconds=TypeAdapter(Duration).validate_python(text))
    except (ValidationError, OverflowError):
        pass
    try:
        return moment_of(text if "T" in text else f"{text}T00:00:00Z").astimezone(UTC)
    except ValueError:
        raise BadInput(f"--since {text}: neither a duration nor a date", "write it as 12h, 30d or 2026-11-01") from None
