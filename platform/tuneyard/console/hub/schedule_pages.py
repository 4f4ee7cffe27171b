"""Schedules of a hub: the list, and one with its runs, verdicts and waits; pause, resume and a run now after a confirmation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tuneyard.api.moments import written
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.cluster import Missing, NotAllowed, NotLoggedIn
from tuneyard.console import comparison, words
from tuneyard.console.app import Hidden
from tuneyard.console.hub.job_pages import NAME, Action, yaml_of
from tuneyard.console.hub.reader import Reader, Readers
from tuneyard.console.hub.rows import moment_of
from tuneyard.console.pages import page
from tuneyard.console.safety import form_of
from tuneyard.metrics import FIGURES
from tuneyard.schedules.view import ScheduleView

ACTIONS = {
    "pause": Action("Pause", "No more runs start. Runs under way go on; runs that fall due meanwhile are left out for good."),
    "resume": Action("Resume", "Runs start again, from the next time that is due."),
    "run-now": Action("Run now", "A run starts at once, beside those of the cron line. A paused Schedule does so too."),
}


class SchedulePages:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        router.add_api_route("/schedules", self.schedules, methods=["GET"])
        router.add_api_route("/schedules/{name}", self.schedule, methods=["GET"])
        router.add_api_route("/schedules/{name}/{action}", self.confirm, methods=["GET"])
        router.add_api_route("/schedules/{name}/{action}", self.act, methods=["POST"])
        return router

    def schedules(self, request: Request) -> Response:
        return page(request, "schedules.html", schedules=self._readers.of(request).schedules(), now=datetime.now(UTC), moment=moment_of)

    def schedule(self, request: Request, name: str, namespace: str = "") -> Response:
        found = schedule_of(self._readers.of(request), name, namespace)
        names = ("resume" if found.suspended else "pause", "run-now")
        return page(
            request,
            "schedule.html",
            schedule=found,
            runs=[(run, list(_figures(run))) for run in found.runs],
            trends=comparison.trends_of([{"metrics": _metrics(run)} for run in reversed(found.runs) if run.figures]),
            actions=[(each, ACTIONS[each].title) for each in names],
            spec=yaml_of(found.spec),
            now=datetime.now(UTC),
            moment=moment_of,
        )

    def confirm(self, request: Request, name: str, action: str, namespace: str = "") -> Response:
        if action not in ACTIONS:
            raise Hidden
        found = schedule_of(self._readers.of(request), name, namespace)
        asked = ACTIONS[action]
        form: dict[str, Any] = {"target": f"/schedules/{words.path(found.name)}/{action}", "back": _url(found), "danger": False}
        state = "paused" if found.suspended else "active"
        return page(request, "confirm.html", thing=found, kind="schedule", title=asked.title, effect=asked.effect, state=state, **form)

    async def act(self, request: Request, name: str, action: str) -> Response:
        """Pause or resume a Schedule, or start a run, then show it."""
        fields = await form_of(request)
        if action not in ACTIONS:
            raise Hidden
        reader = await run_in_threadpool(self._readers.of, request)
        changed = await run_in_threadpool(_changed, reader, name, fields.get("namespace", ""), action)
        return RedirectResponse(_url(changed), 303)


def schedule_of(reader: Reader, name: str, namespace: str) -> ScheduleView:
    """A Schedule. Raises Hidden for one that does not exist, and in the same words for one that this reader may not see."""
    where = namespace or reader.hub.address.namespace
    hidden = Hidden("the hub has no such Schedule, or you may not see it", "the list of Schedules shows those that you may see")
    if not NAME.fullmatch(name) or not NAME.fullmatch(where):
        raise hidden
    try:
        return reader.hub.schedule(name, where)
    except NotLoggedIn:
        raise
    except (Missing, NotAllowed):
        raise hidden from None


def _changed(reader: Reader, name: str, namespace: str, action: str) -> ScheduleView:
    found = schedule_of(reader, name, namespace)
    change: Mapping[str, Any] = {"runNow": written(datetime.now(UTC))} if action == "run-now" else {"suspend": action == "pause"}
    return reader.hub.change_schedule(found.name, change, found.namespace)


def _url(schedule: ScheduleView) -> str:
    return f"/schedules/{words.path(schedule.name)}?{words.query(namespace=schedule.namespace)}"


def _metrics(run: ScheduledRun) -> dict[str, float]:
    several = len({figure.task for figure in run.figures}) > 1
    return {f"{figure.task} {figure.name}" if several else figure.name: figure.value for figure in run.figures}


def _figures(run: ScheduledRun) -> Iterator[str]:
    """Each figure of a run with its value, and with its task where there are several."""
    for name, value in _metrics(run).items():
        known = FIGURES.get(name.rpartition(" ")[2])
        yield f"{name} {known.text(value) if known is not None else f'{value:.4g}'}"
