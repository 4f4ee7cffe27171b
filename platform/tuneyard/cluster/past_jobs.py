"""Run history of a hub for its users, through its API of history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tuneyard.cluster.api_server import ApiServer
from tuneyard.cluster.errors import NotAllowed, NotInstalled
from tuneyard.cluster.history_api import HISTORY_GROUP, PAST_JOB, TRAINING_RUN, USAGE, HistoryQuery
from tuneyard.kubernetes import Request, get_object, list_objects

T = TypeVar("T")
Row = dict[str, Any]


class PastJobs:
    """All methods raise NotInstalled where the hub has no history, NotAllowed without the right, and the errors of `ApiServer.ask`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def training_runs(self, namespace: str, query: HistoryQuery) -> list[Row]:
        """Ended train attempts of a namespace (empty: of all) with known settings, the newest first.

        Each has `settings`, `status`, `failure`, `result`, and where it ran: `namespace`, `job`, `cluster`, `started_at`.
        """
        items = self._asked(lambda: self._api.list(_listing(list_objects(TRAINING_RUN, namespace), query)))
        return [dict(item["run"]) for item in items]

    def list(self, namespace: str, query: HistoryQuery, limit: int | None = None) -> list[Row]:
        """Jobs of a namespace (empty: of all), the newest first."""
        items = self._asked(lambda: self._api.list(_listing(list_objects(PAST_JOB, namespace), query), limit=limit))
        return [dict(item["run"]) for item in items]

    def job(self, namespace: str, name: str) -> Row:
        """One job with its spec and attempts, by name (the newest) or id. Raises Missing."""
        return dict(self._asked(lambda: self._api.ask(get_object(PAST_JOB, namespace, name)))["run"])

    def usage(self, namespace: str, query: HistoryQuery) -> Row:
        """GPU-hours and cost of a namespace (empty: of all): `since`, `until`, `by`, `rows`."""
        return dict(self._asked(lambda: self._api.ask(_listing(list_objects(USAGE, namespace), query))))

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (NotAllowed, NotInstalled):
            # API servers check rights before they see that the API does not exist.
            if self._api.serves(HISTORY_GROUP):
                raise
            raise NotInstalled(
                f"{self._api.address.hub} keeps no history", "its chart connects it with a database: docs/history.md"
            ) from None


def _listing(request: Request, query: HistoryQuery) -> Request:
    parameters: Mapping[str, str] = {**request.parameters, **query.parameters()}
    return replace(request, parameters=parameters)
