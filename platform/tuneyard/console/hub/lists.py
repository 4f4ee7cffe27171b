"""The lists of a hub: overview, queue, jobs, clusters and teams."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tuneyard.cluster import HubError, NotLoggedIn, Snapshot
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.console.hub import fleet, rows, spending
from tuneyard.console.hub.reader import USAGE_DAYS, Readers
from tuneyard.console.pages import page, render

PAGE = 50


class Lists:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        paths = {"/": self.overview, "/queue": self.queue, "/jobs": self.jobs, "/clusters": self.clusters, "/teams": self.teams}
        paths |= {"/overview/gpus": self.gpus, "/teams/usage": self.usage}
        for path, answer in paths.items():
            router.add_api_route(path, answer, methods=["GET"])
        return router

    def overview(self, request: Request) -> Response:
        reader = self._readers.of(request)
        listed = reader.listed()
        now = datetime.now(UTC)
        today = now.astimezone().date()
        ended = [row for row in listed.rows if row.ended_at is not None and row.ended_at.astimezone().date() == today]
        return page(
            request,
            "hub_overview.html",
            now=now,
            running=[row for row in listed.rows if row.phase in rows.AT_WORK],
            queue=rows.queue_of(listed.rows),
            failed=[row for row in ended if row.phase == "Failed"],
            succeeded=[row for row in ended if row.phase == "Succeeded"],
            gpus=_gpus_of(reader.at_work()) if reader.at_work.is_at_hand else None,
            partial=listed.partial,
        )

    def gpus(self, request: Request) -> Response:
        """The tile of GPUs alone: it takes whole JobSpecs, for which the overview does not wait."""
        return HTMLResponse(render("hub_gpus.html", gpus=_gpus_of(self._readers.of(request).at_work())))

    def queue(self, request: Request) -> Response:
        listed = self._readers.of(request).listed()
        waiting = rows.queue_of(listed.rows)
        return page(request, "queue.html", queue=waiting[: 4 * PAGE], count=len(waiting), partial=listed.partial)

    def jobs(self, request: Request, q: str = "", status: str = "", team: str = "", after: str = "") -> Response:
        listed = self._readers.of(request).listed()
        found = rows.matching(listed.rows, q.strip(), status, team)
        shown, older = rows.page_after(found, after, PAGE)
        teams = sorted({row.team for row in listed.rows})
        wanted = {"q": q, "status": status, "team": team}
        phases = (*rows.WAITING, *rows.AT_WORK, *rows.ENDED)
        values: dict[str, Any] = {"shown": shown, "older": older, "count": len(found), "first": not after, "teams": teams}
        return page(request, "hub_jobs.html", wanted=wanted, phases=phases, partial=listed.partial, **values)

    def clusters(self, request: Request) -> Response:
        snapshot = self._readers.of(request).at_work()
        return page(request, "clusters.html", clusters=fleet.clusters_of(snapshot), partial=snapshot.partial)

    def teams(self, request: Request) -> Response:
        reader = self._readers.of(request)
        snapshot, now = reader.at_work(), datetime.now(UTC)
        try:
            spent = spending.spent_of(reader.usage(HistoryQuery(by=("month", "team"), since=spending.first_month(now))))
        except NotLoggedIn:
            raise
        except HubError:  # a hub without history, or one whose database is away: the page has the JobSpecs' own use
            spent = []
        usage = reader.used() if reader.used.is_at_hand else None
        values: dict[str, Any] = {"teams": fleet.teams_of(snapshot), "usage": usage, "days": USAGE_DAYS}
        return page(request, "teams.html", spent=spent, partial=snapshot.partial, **values)

    def usage(self, request: Request) -> Response:
        """The use of the last days alone: without history it takes all JobSpecs, for which the page of teams does not wait."""
        return HTMLResponse(render("hub_usage.html", usage=self._readers.of(request).used(), days=USAGE_DAYS))


def _gpus_of(snapshot: Snapshot) -> dict[str, int]:
    """GPUs of all clusters, and how many of them jobs of the hub hold."""
    mapped = fleet.clusters_of(snapshot)
    skus = [sku for each in mapped for sku in each.skus if sku.sku != "cpu"]
    return {"all": sum(sku.gpus for sku in skus), "held": sum(sku.held for sku in skus), "clusters": len(mapped)}
