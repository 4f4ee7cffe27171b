"""The lists of a hub: overview, queue, jobs, clusters and teams."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tuneyard.cluster import HubError, NotLoggedIn
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.console.hub import fleet, rows, spending
from tuneyard.console.hub.reader import Readers
from tuneyard.console.pages import page

PAGE = 50


class Lists:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        paths = {"/": self.overview, "/queue": self.queue, "/jobs": self.jobs, "/clusters": self.clusters, "/teams": self.teams}
        for path, answer in paths.items():
            router.add_api_route(path, answer, methods=["GET"])
        return router

    def overview(self, request: Request) -> Response:
        seen = self._readers.of(request).seen()
        snapshot, found = seen.snapshot, seen.rows
        now = datetime.now(UTC)
        today = now.astimezone().date()
        ended = [row for row in found if row.ended_at is not None and row.ended_at.astimezone().date() == today]
        mapped = fleet.clusters_of(snapshot)
        skus = [sku for each in mapped for sku in each.skus if sku.sku != "cpu"]
        return page(
            request,
            "hub_overview.html",
            now=now,
            running=[row for row in found if row.phase in rows.AT_WORK],
            queue=rows.queue_of(found),
            failed=[row for row in ended if row.phase == "Failed"],
            succeeded=[row for row in ended if row.phase == "Succeeded"],
            gpus=sum(sku.gpus for sku in skus),
            held=sum(sku.held for sku in skus),
            clusters=mapped,
            partial=snapshot.partial,
        )

    def queue(self, request: Request) -> Response:
        seen = self._readers.of(request).seen()
        waiting = rows.queue_of(seen.rows)
        return page(request, "queue.html", queue=waiting[: 4 * PAGE], count=len(waiting), partial=seen.snapshot.partial)

    def jobs(self, request: Request, q: str = "", status: str = "", team: str = "", after: str = "") -> Response:
        seen = self._readers.of(request).seen()
        everything = seen.rows
        found = rows.matching(everything, q.strip(), status, team)
        shown, older = rows.page_after(found, after, PAGE)
        teams = sorted({row.team for row in everything})
        wanted = {"q": q, "status": status, "team": team}
        phases = (*rows.WAITING, *rows.AT_WORK, *rows.ENDED)
        values: dict[str, Any] = {"shown": shown, "older": older, "count": len(found), "first": not after, "teams": teams}
        return page(request, "hub_jobs.html", wanted=wanted, phases=phases, partial=seen.snapshot.partial, **values)

    def clusters(self, request: Request) -> Response:
        snapshot = self._readers.of(request).seen().snapshot
        return page(request, "clusters.html", clusters=fleet.clusters_of(snapshot), partial=snapshot.partial)

    def teams(self, request: Request) -> Response:
        reader = self._readers.of(request)
        snapshot, now = reader.seen().snapshot, datetime.now(UTC)
        try:
            spent = spending.spent_of(reader.usage(HistoryQuery(by=("month", "team"), since=spending.first_month(now))))
        except NotLoggedIn:
            raise
        except HubError:  # a hub without history, or one whose database is away: the page has the JobSpecs' own use
            spent = []
        values: dict[str, Any] = {"teams": fleet.teams_of(snapshot), "usage": fleet.usage_of(snapshot, now), "days": fleet.USAGE_DAYS}
        return page(request, "teams.html", spent=spent, partial=snapshot.partial, **values)
