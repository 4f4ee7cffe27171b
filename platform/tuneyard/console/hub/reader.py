"""One reader of a hub: the client with their rights, and what it has answered within the last seconds.

A snapshot serves all pages for FRESH_S. For STALE_S it still serves a page at once, while a thread reads the next one, because a list of
10,000 JobSpecs takes an API server seconds. After that, a page waits for the next snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from starlette.requests import Request

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cluster import Hub, NotAllowed, NotLoggedIn, Snapshot
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.console.hub import rows
from tuneyard.schedules.view import ScheduleView

FRESH_S = 4.0
STALE_S = 15.0
HISTORY_FRESH_S = 10.0
_MOST_PAST = 200


@dataclass(frozen=True)
class Seen:
    """A snapshot with the moment (`time.monotonic`) at which it was asked for."""

    snapshot: Snapshot
    asked_at: float

    @cached_property
    def rows(self) -> list[rows.HubRow]:
        return rows.rows_of(self.snapshot)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.asked_at


class Reader:
    """`namespaces`: the namespaces whose jobs this reader may list, for a reader who may not list those of all; None: that of the address.
    `name`: the user, for the foot of the pages."""

    def __init__(self, hub: Hub, *, name: str = "", namespaces: Callable[[], Sequence[str]] | None = None) -> None:
        self.hub = hub
        self.name = name
        self._namespaces = namespaces
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._seen: Seen | None = None
        self._past: dict[tuple[str, str], tuple[float, dict[str, Any] | None]] = {}

    def seen(self) -> Seen:
        """The hub as this reader may see it, at most STALE_S old. Raises the errors of `Hub.snapshot`."""
        seen = self._seen
        if seen is not None and seen.age_s < FRESH_S:
            return seen
        if seen is not None and seen.age_s < STALE_S:
            if self._refreshing.acquire(blocking=False):
                threading.Thread(target=self._refresh, daemon=True).start()
            return seen
        with self._lock:
            if self._seen is None or self._seen.age_s >= STALE_S:
                self._look()
            assert self._seen is not None
            return self._seen

    def forget(self) -> None:
        """After a change, and once nobody reads: the next page asks the hub."""
        self._seen = None
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
        """Age of the snapshot in memory; 0 without one."""
        seen = self._seen
        return seen.age_s if seen is not None else 0.0

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

    def _refresh(self) -> None:
        try:
            self._look()
        except TuneyardError:  # the page that waits for the next snapshot shows it
            pass
        finally:
            self._refreshing.release()

    def _look(self) -> None:
        asked_at = time.monotonic()
        self._seen = Seen(self.hub.snapshot(need_clusters=False, namespaces=self._namespaces), asked_at)


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
