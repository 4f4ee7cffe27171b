"""One reader of a hub: the client with their rights, and what it has answered within the last seconds.

An answer serves all pages for FRESH_S. For STALE_S it still serves a page at once, while a thread reads the next one, because 10,000 whole
JobSpecs take an API server seconds. After that, a page waits for the next answer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cluster import Hub, HubError, NotAllowed, NotLoggedIn, Snapshot, UsageReport, usage_report, used_of
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.console.hub import rows
from tuneyard.schedules.view import ScheduleView

T = TypeVar("T")
FRESH_S = 4.0
STALE_S = 15.0
HISTORY_FRESH_S = 10.0
USAGE_DAYS = 30
_MOST_PAST = 200
_LISTED_PER_READ = 10
"""JobSpecs that a list answers in the time that one takes by itself."""


class Kept(Generic[T]):
    """What `read` answers, kept: FRESH_S as it is, and up to STALE_S while a thread reads it again.

    `made_of`: the kept answers that `read` may use. The answer is as old as the oldest of them."""

    def __init__(self, read: Callable[[], T], *, made_of: Sequence[Kept[Any]] = ()) -> None:
        self._read = read
        self._made_of = made_of
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._kept: tuple[float, T] | None = None

    def __call__(self) -> T:
        """The answer, at most STALE_S old. Raises the errors of `read`."""
        if (kept := self._kept) is not None and self.is_at_hand:
            if self.age_s >= FRESH_S and self._refreshing.acquire(blocking=False):
                threading.Thread(target=self._refresh, daemon=True).start()
            return kept[1]
        with self._lock:
            if (kept := self._kept) is None or not self.is_at_hand:
                kept = self._look()
            return kept[1]

    @property
    def age_s(self) -> float:
        """Seconds since it was asked for; endless where nothing is kept."""
        kept = self._kept
        return time.monotonic() - kept[0] if kept is not None else math.inf

    @property
    def is_at_hand(self) -> bool:
        """Whether a call answers without asking the hub."""
        return self.age_s < STALE_S

    def forget(self) -> None:
        self._kept = None

    def _look(self) -> tuple[float, T]:
        asked_at = time.monotonic()
        answer = self._read()
        parts = [each._kept for each in self._made_of if each.is_at_hand]
        kept = self._kept = min([asked_at, *(part[0] for part in parts if part is not None)]), answer
        return kept

    def _refresh(self) -> None:
        try:
            self._look()
        except TuneyardError:  # the page that waits for the next answer shows it
            pass
        finally:
            self._refreshing.release()


@dataclass(frozen=True)
class Listed:
    """The jobs of lists, the newest first. `partial`: what is missing of them, for people."""

    rows: list[rows.HubRow]
    partial: str


class Reader:
    """`namespaces`: the namespaces whose jobs this reader may list, for a reader who may not list those of all; None: that of the address.
    `name`: the user, for the foot of the pages."""

    def __init__(self, hub: Hub, *, name: str = "", namespaces: Callable[[], Sequence[str]] | None = None) -> None:
        self.hub = hub
        self.name = name
        self._namespaces = namespaces
        self.seen = Kept(self._snapshot)
        """The hub as this reader may see it: whole objects. Raises the errors of `Hub.snapshot`."""
        self.listed = Kept(self._listed)
        """The jobs that this reader may see, with the fields of lists alone: for 10,000 in a sixth of the time."""
        self.at_work = Kept(self._at_work, made_of=(self.listed, self.seen))
        """Clusters and teams, and at least the jobs that hold GPUs. Raises the errors of `Hub.snapshot`."""
        self.used = Kept(self._used, made_of=(self.at_work, self.seen))
        """Use of the last USAGE_DAYS: of history with the GPUs that are held now, or of all JobSpecs where there is no history. Raises the
        errors of `Hub.snapshot`."""
        self._past: dict[tuple[str, str], tuple[float, dict[str, Any] | None]] = {}

    def forget(self) -> None:
        """After a change, and once nobody reads: the next page asks the hub."""
        self.seen.forget()
        self.listed.forget()
        self.at_work.forget()
        self.used.forget()
        self._past.clear()

    @cached_property
    def identity(self) -> str:
        """The user, as the API server knows them: the same under several tokens. Empty where it cannot say. It may send a request."""
        try:
            return self.name or self.hub.user()
        except NotLoggedIn:
            raise
        except TuneyardError:
            return ""

    @property
    def idle_s(self) -> float:
        """Age of the newest answer in memory; 0 without any."""
        age_s = min(each.age_s for each in (self.seen, self.listed, self.at_work, self.used))
        return age_s if math.isfinite(age_s) else 0.0

    def schedules(self) -> list[ScheduleView]:
        """The Schedules that this reader may list, by namespace and name. Raises NotAllowed without a right on any."""
        try:
            return self.hub.schedules(everywhere=True)
        except NotLoggedIn:
            raise
        except NotAllowed:
            if self._namespaces is None:
                return self.hub.schedules()
            return [view for namespace in self._namespaces() for view in self.hub.schedules(namespace)]

    def past(self, namespace: str, reference: str) -> dict[str, Any] | None:
        """A job on record by its name or id, HISTORY_FRESH_S old at most; None where there is none, or none for this reader.

        Raises HubError, as NotInstalled, where history cannot say."""
        key = namespace, reference
        known = self._past.get(key)
        if known is not None and time.monotonic() - known[0] < HISTORY_FRESH_S:
            return known[1]
        try:
            found: dict[str, Any] | None = self.hub.past.job(namespace, reference)
        except NotLoggedIn:
            raise
        except (BadInput, NotAllowed):  # a missing namespace is BadInput, as a missing job is
            found = None
        if len(self._past) >= _MOST_PAST:
            self._past.clear()
        self._past[key] = (time.monotonic(), found)
        return found

    def past_if_known(self, namespace: str, reference: str) -> dict[str, Any] | None:
        """`past`, for pages that do without history: None where it cannot say."""
        try:
            return self.past(namespace, reference)
        except NotLoggedIn:
            raise
        except TuneyardError:
            return None

    def past_jobs(self, query: HistoryQuery, limit: int) -> list[dict[str, Any]]:
        """Jobs on record, the newest first, of all namespaces that this reader may list. Raises NotInstalled, NotAllowed."""
        found = self._everywhere(lambda namespace: self.hub.past.list(namespace, query, limit))
        return sorted((row for part in found for row in part), key=lambda row: str(row.get("started_at")), reverse=True)[:limit]

    def usage(self, query: HistoryQuery) -> list[dict[str, Any]]:
        """Rows of usage of all namespaces that this reader may list, a row per namespace and group. Raises NotInstalled, NotAllowed."""
        return [row for part in self._everywhere(lambda namespace: self.hub.past.usage(namespace, query)["rows"]) for row in part]

    def _everywhere(self, ask: Callable[[str], Any]) -> list[Any]:
        try:
            return [ask("")]
        except NotLoggedIn:
            raise
        except NotAllowed:
            own = self._namespaces() if self._namespaces is not None else (self.hub.address.namespace,)
            found = []
            for namespace in own:
                try:
                    found.append(ask(namespace))
                except NotLoggedIn:
                    raise
                except NotAllowed:
                    continue
            return found

    def _snapshot(self) -> Snapshot:
        return self.hub.snapshot(need_clusters=False, namespaces=self._namespaces)

    def _at_work(self) -> Snapshot:
        listed = self.listed()
        holding = [(row.namespace, row.name) for row in listed.rows if row.holds]
        if len(holding) * _LISTED_PER_READ > len(listed.rows):
            return self.seen()
        found = self.hub.snapshot(need_clusters=False, only=holding)
        return replace(found, partial="; ".join(part for part in (listed.partial, found.partial) if part))

    def _used(self) -> UsageReport:
        until = datetime.now(UTC)
        since = until - timedelta(days=USAGE_DAYS)
        try:
            past = self.usage(HistoryQuery(by=("team", "job", "sku"), since=since, until=until))
        except NotLoggedIn:
            raise
        except HubError:  # a hub without history, or one whose database is away
            past = []
        if not past:
            return usage_report(self.seen(), since, until)
        return usage_report(self.at_work(), since, until, past=[used_of(row) for row in past])

    def _listed(self) -> Listed:
        items, partial = self.hub.listed(namespaces=self._namespaces)
        return Listed(rows.rows_of(items), partial)


class Readers(Protocol):
    """Who may read the pages."""

    @property
    def label(self) -> str:
        """The origin of the data, for the foot of each page."""
        ...

    def of(self, request: Request, /) -> Reader:
        """The reader behind a request. Raises NotLoggedIn, NotAllowed. It may send requests."""
        ...

    def close(self) -> None: ...


class OneReader:
    """The user of a kubeconfig, on their own machine."""

    def __init__(self, hub: Hub) -> None:
        self._reader = Reader(hub)
        self.label = f"{hub.address.hub}, namespace {hub.address.namespace}"

    def of(self, _request: Request, /) -> Reader:
        return self._reader

    def close(self) -> None:
        """Nothing stays open."""
