"""The pages of a hub: overview, queue, jobs, clusters, teams."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cluster import Hub, HubJob, Missing, NotAllowed, NotLoggedIn, Snapshot
from tuneyard.cluster.log_api import LogQuery
from tuneyard.console import words
from tuneyard.console.app import Hidden
from tuneyard.console.hub import fleet, rows
from tuneyard.console.hub.job_view import job_view, outlooks_of, reasons_of, state_of
from tuneyard.console.pages import page, render
from tuneyard.console.safety import form_of
from tuneyard.console.streams import Look, Streams

FRESH_S = 4.0
"""A snapshot of the hub serves all pages for so long: many tabs cost the API server no more than one."""
PAGE = 50
TAIL_LINES = 2_000
SEARCHED_LINES = 10_000
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ACTIONS = {
    "cancel": ("Cancel", "The running attempt commits a checkpoint, then its machines are freed. The job does not start again."),
    "suspend": ("Suspend", "The running attempt commits a checkpoint, then its machines are freed. The job waits until it is resumed."),
    "resume": ("Resume", "The job goes back to the queue, and goes on from its last checkpoint once there is room."),
}


class HubJobs:
    """The JobSpecs, Clusters and Teams of one hub, read with one user's rights."""

    navigation = (("/", "Overview"), ("/queue", "Queue"), ("/jobs", "Jobs"), ("/clusters", "Clusters"), ("/teams", "Teams"))

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._snapshot: tuple[float, Snapshot] | None = None
        self._streams = Streams(every_s=2.0)

    @property
    def label(self) -> str:
        return f"{self._hub.address.hub}, namespace {self._hub.address.namespace}"

    def close(self) -> None:
        """Nothing stays open."""

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        for path, answer in (("/", self.overview), ("/queue", self.queue), ("/jobs", self.jobs), ("/jobs/{name}", self.job)):
            router.add_api_route(path, answer, methods=["GET"])
        router.add_api_route("/jobs/{name}/live", self.live, methods=["GET"])
        router.add_api_route("/jobs/{name}/logs", self.logs, methods=["GET"])
        router.add_api_route("/jobs/{name}/{action}", self.confirm, methods=["GET"])
        router.add_api_route("/jobs/{name}/{action}", self.act, methods=["POST"])
        router.add_api_route("/clusters", self.clusters, methods=["GET"])
        router.add_api_route("/teams", self.teams, methods=["GET"])
        return router

    # --- lists

    def overview(self, request: Request) -> Response:
        snapshot = self.snapshot()
        found = rows.rows_of(snapshot)
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
        snapshot = self.snapshot()
        waiting = rows.queue_of(rows.rows_of(snapshot))
        return page(request, "queue.html", queue=waiting[: 4 * PAGE], count=len(waiting), partial=snapshot.partial)

    def jobs(self, request: Request, q: str = "", status: str = "", team: str = "", after: str = "") -> Response:
        snapshot = self.snapshot()
        everything = rows.rows_of(snapshot)
        found = rows.matching(everything, q.strip(), status, team)
        shown, older = rows.page_after(found, after, PAGE)
        teams = sorted({row.team for row in everything})
        wanted = {"q": q, "status": status, "team": team}
        phases = (*rows.WAITING, *rows.AT_WORK, *rows.ENDED)
        values: dict[str, Any] = {"shown": shown, "older": older, "count": len(found), "first": not after, "teams": teams}
        return page(request, "hub_jobs.html", wanted=wanted, phases=phases, partial=snapshot.partial, **values)

    def clusters(self, request: Request) -> Response:
        snapshot = self.snapshot()
        return page(request, "clusters.html", clusters=fleet.clusters_of(snapshot), partial=snapshot.partial)

    def teams(self, request: Request) -> Response:
        snapshot = self.snapshot()
        usage = fleet.usage_of(snapshot, datetime.now(UTC))
        return page(request, "teams.html", teams=fleet.teams_of(snapshot), usage=usage, days=fleet.USAGE_DAYS, partial=snapshot.partial)

    # --- one job

    def job(self, request: Request, name: str, namespace: str = "") -> Response:
        job = self._job(name, namespace)
        now = datetime.now(UTC)
        waits = str(job.phase) in rows.WAITING and not job.spec.get("suspend") and not job.cancelled
        try:
            reasons = reasons_of(outlooks_of(job, self.snapshot(), now), now) if waits else []
        except TuneyardError:  # the reasons need rights on clusters and other jobs, the page does not
            reasons = []
        actions = [] if job.ended or job.cancelled else ["resume" if job.spec.get("suspend") else "suspend", "cancel"]
        spec = _yaml(dict(job.spec))
        labels = [(action, _ACTIONS[action][0]) for action in actions]
        return page(request, "hub_job.html", now=now, reasons=reasons, actions=labels, spec=spec, **job_view(job, now))

    async def live(self, request: Request, name: str, namespace: str = "") -> Response:
        job = await run_in_threadpool(self._job, name, namespace)
        return self._streams.follow(request, lambda seen: self._look(job.name, job.namespace, seen))

    def _look(self, name: str, namespace: str, seen: Any) -> Look:
        try:
            job = self._hub.job(name, namespace)
        except (Missing, NotAllowed):
            return Look(seen, "", True)
        except TuneyardError:  # an outage of the hub is waited out
            return Look(seen, "", False)
        html = "" if job.version == seen else render("hub_job_live.html", **job_view(job, datetime.now(UTC)))
        return Look(job.version, html, job.ended)

    def logs(self, request: Request, name: str, namespace: str = "", attempt: int = 0, source: str = "", find: str = "") -> Response:
        """The end of the log of one source, or the lines of it that hold a text."""
        job = self._job(name, namespace)
        numbers = sorted({each.number for each in job.status.attempts})
        attempt = attempt if attempt in numbers else numbers[-1] if numbers else 0
        if not attempt:
            raise BadInput("the job has no attempt yet, and so no logs", "wait until it has started")
        known = self._hub.log(job.name, job.namespace, LogQuery(attempt, limit_bytes=0, uid=job.uid)).sources
        if source and source not in known:
            raise Hidden("this attempt has no such log", "choose one on the page of its logs")
        source = source or next((each for each in known if each != "driver"), next(iter(known), ""))
        lines = SEARCHED_LINES if find else TAIL_LINES
        query = LogQuery(attempt, (source,), tail_lines=lines, uid=job.uid)
        text = self._hub.log(job.name, job.namespace, query).parts.get(source, "") if source else ""
        if find:
            text = "\n".join(line for line in text.split("\n") if find.lower() in line.lower())
        values: dict[str, Any] = {"numbers": numbers, "attempt": attempt, "sources": known, "chosen": source, "find": find, "text": text}
        return page(request, "hub_logs.html", job=job, lines=lines, **values)

    # --- changes

    def confirm(self, request: Request, name: str, action: str, namespace: str = "") -> Response:
        if action not in _ACTIONS:
            raise Hidden
        job = self._job(name, namespace)
        title, effect = _ACTIONS[action]
        return page(request, "confirm.html", job=job, action=action, title=title, effect=effect, state=state_of(job))

    async def act(self, request: Request, name: str, action: str) -> Response:
        """Cancel, suspend or resume a job, then show it. Doing so twice changes nothing."""
        fields = await form_of(request)
        if action not in _ACTIONS:
            raise Hidden
        job = await run_in_threadpool(self._job, name, fields.get("namespace", ""))
        if action == "cancel":
            await run_in_threadpool(self._hub.cancel, job.name, job.namespace)
        else:
            await run_in_threadpool(lambda: self._hub.suspend(job.name, job.namespace, hold=action == "suspend"))
        self._snapshot = None
        return RedirectResponse(f"/jobs/{words.path(job.name)}?{words.query(namespace=job.namespace)}", 303)

    # --- reading

    def snapshot(self) -> Snapshot:
        """The hub now, or as it was FRESH_S ago."""
        with self._lock:
            if self._snapshot is None or time.monotonic() - self._snapshot[0] > FRESH_S:
                self._snapshot = (time.monotonic(), self._hub.snapshot(need_clusters=False))
            return self._snapshot[1]

    def _job(self, name: str, namespace: str) -> HubJob:
        """A job. Raises Hidden for one that does not exist, and in the same words for one that this user may not see."""
        where = namespace or self._hub.address.namespace
        hidden = Hidden("the hub has no such job, or you may not see it", "the list of jobs shows those that you may see")
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(where):
            raise hidden
        try:
            return self._hub.job(name, where)
        except NotLoggedIn:
            raise
        except (Missing, NotAllowed):
            raise hidden from None


def _yaml(spec: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))
