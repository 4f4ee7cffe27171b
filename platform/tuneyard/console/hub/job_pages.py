"""The pages of one JobSpec: its state, live, its logs, and its changes after a confirmation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cluster import HubJob, Missing, NotAllowed, NotLoggedIn
from tuneyard.console import words
from tuneyard.console.app import Hidden
from tuneyard.console.hub import rows
from tuneyard.console.hub.job_view import job_view, outlooks_of, reasons_of
from tuneyard.console.hub.log_page import LoggedJob, log_page
from tuneyard.console.hub.past_record import record_of
from tuneyard.console.hub.reader import Reader, Readers
from tuneyard.console.pages import page, render
from tuneyard.console.safety import form_of
from tuneyard.console.streams import Look, Streams

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NUMBERED = re.compile(r"(.*)-([0-9]{1,6})")
_TRIES = 20
_LONGEST_NAME = 63
_NOT_COPIED = ("cancelled", "suspend")


@dataclass(frozen=True)
class Action:
    """A change of a job. `effect`: for the confirmation."""

    title: str
    effect: str


ACTIONS = {
    "cancel": Action("Cancel", "The running attempt commits a checkpoint, then its machines are freed. The job does not start again."),
    "suspend": Action(
        "Suspend", "The running attempt commits a checkpoint, then its machines are freed. The job waits until it is resumed."
    ),
    "resume": Action("Resume", "The job goes back to the queue, and goes on from its last checkpoint once there is room."),
    "retry": Action(
        "Retry", "A new job with the same spec is submitted under the next free name, such as NAME-2. This one stays as it is."
    ),
}


class JobPages:
    def __init__(self, readers: Readers, streams: Streams) -> None:
        self._readers = readers
        self._streams = streams

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        router.add_api_route("/jobs/{name}", self.job, methods=["GET"])
        router.add_api_route("/jobs/{name}/live", self.live, methods=["GET"])
        router.add_api_route("/jobs/{name}/logs", self.logs, methods=["GET"])
        router.add_api_route("/jobs/{name}/reasons", self.reasons, methods=["GET"])
        router.add_api_route("/jobs/{name}/{action}", self.confirm, methods=["GET"])
        router.add_api_route("/jobs/{name}/{action}", self.act, methods=["POST"])
        return router

    def job(self, request: Request, name: str, namespace: str = "") -> Response:
        reader = self._readers.of(request)
        try:
            job = job_of(reader, name, namespace)
        except Hidden:
            where = namespace or reader.hub.address.namespace
            if NAME.fullmatch(name) and NAME.fullmatch(where) and reader.past_if_known(where, name) is not None:
                return RedirectResponse(f"/history/{words.path(name)}?{words.query(namespace=where)}", 303)
            raise
        now = datetime.now(UTC)
        labels = [(action, ACTIONS[action].title) for action in _possible(job)]
        values: dict[str, Any] = {"reasons": None if _waits(job) else [], "actions": labels, "spec": yaml_of(job.spec)}
        return page(request, "hub_job.html", now=now, **values, **_live_part(reader, job, now))

    def reasons(self, request: Request, name: str, namespace: str = "") -> Response:
        """The scheduler's reasons alone: they take the JobSpecs of all jobs, for which the page does not wait."""
        reader = self._readers.of(request)
        job = job_of(reader, name, namespace)
        reasons = _reasons(reader, job, datetime.now(UTC)) if _waits(job) else []
        return HTMLResponse(render("hub_reasons.html", job=job, reasons=reasons))

    async def live(self, request: Request, name: str, namespace: str = "") -> Response:
        reader = await run_in_threadpool(self._readers.of, request)
        job = await run_in_threadpool(job_of, reader, name, namespace)
        identity = await run_in_threadpool(lambda: reader.identity)
        return self._streams.follow(request, lambda seen: _look(reader, job, seen), reader=identity)

    def logs(self, request: Request, name: str, namespace: str = "", attempt: int = 0, source: str = "", find: str = "") -> Response:
        """The end of the log of one source, or the lines of it that hold a text."""
        reader = self._readers.of(request)
        job = job_of(reader, name, namespace)
        numbers = [each.number for each in job.status.attempts]
        logged = LoggedJob(job.name, job.namespace, job.uid, f"/jobs/{words.path(job.name)}", numbers)
        return log_page(request, reader, logged, attempt, source, find)

    def confirm(self, request: Request, name: str, action: str, namespace: str = "") -> Response:
        if action not in ACTIONS:
            raise Hidden
        job = job_of(self._readers.of(request), name, namespace)
        asked = ACTIONS[action]
        back = f"/jobs/{words.path(job.name)}?{words.query(namespace=job.namespace)}"
        form: dict[str, Any] = {"target": f"/jobs/{words.path(job.name)}/{action}", "back": back, "danger": action == "cancel"}
        return page(request, "confirm.html", thing=job, kind="job", title=asked.title, effect=asked.effect, state=job.state, **form)

    async def act(self, request: Request, name: str, action: str) -> Response:
        """Change a job, then show it. Doing so twice changes nothing, but for a retry, which submits another job."""
        fields = await form_of(request)
        if action not in ACTIONS:
            raise Hidden
        reader = await run_in_threadpool(self._readers.of, request)
        shown = await run_in_threadpool(_changed, reader, name, fields.get("namespace", ""), action)
        reader.forget()
        return RedirectResponse(f"/jobs/{words.path(shown.name)}?{words.query(namespace=shown.namespace)}", 303)


def job_of(reader: Reader, name: str, namespace: str) -> HubJob:
    """A job. Raises Hidden for one that does not exist, and in the same words for one that this reader may not see."""
    where = namespace or reader.hub.address.namespace
    hidden = Hidden("the hub has no such job, or you may not see it", "the list of jobs shows those that you may see")
    if not NAME.fullmatch(name) or not NAME.fullmatch(where):
        raise hidden
    try:
        return reader.hub.job(name, where)
    except NotLoggedIn:
        raise
    except (Missing, NotAllowed):
        raise hidden from None


def yaml_of(spec: Mapping[str, Any]) -> str:
    """A spec as YAML."""
    import yaml

    return str(yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True))


def _waits(job: HubJob) -> bool:
    return job.state in rows.WAITING


def _reasons(reader: Reader, job: HubJob, now: datetime) -> list[dict[str, Any]]:
    """No reasons where the reader lacks rights on clusters and other jobs: the page needs no such rights."""
    try:
        return reasons_of(outlooks_of(job, reader.seen(), now), now)
    except NotLoggedIn:
        raise
    except TuneyardError:
        return []


def _possible(job: HubJob) -> list[str]:
    if job.deleting:
        return []
    if job.ended:
        return ["retry"]
    if job.cancelled:
        return []
    held = bool(job.spec.get("suspend"))
    return [*(["resume"] if held or job.asleep else []), *([] if held else ["suspend"]), "cancel"]


def _live_part(reader: Reader, job: HubJob, now: datetime) -> dict[str, Any]:
    """The state of a job, with the curves that history has of it."""
    found = reader.past_if_known(job.namespace, job.name) if job.status.attempts else None
    return job_view(job, now, record_of(found) if found is not None and found.get("uid") == job.uid else None)


def _look(reader: Reader, known: HubJob, seen: Any) -> Look:
    try:
        job = reader.hub.job(known.name, known.namespace)
    except (Missing, NotAllowed):
        return Look(seen, "", True)
    except TuneyardError:  # an outage of the hub is waited out
        return Look(seen, "", False)
    if job.version == seen:
        return Look(seen, "", job.ended)
    now = datetime.now(UTC)
    return Look(job.version, render("hub_job_live.html", **_live_part(reader, job, now)), job.ended)


def _changed(reader: Reader, name: str, namespace: str, action: str) -> HubJob:
    job = job_of(reader, name, namespace)
    if action == "cancel":
        return reader.hub.cancel(job.name, job.namespace)[0]
    if action == "retry":
        return _again(reader, job)
    return reader.hub.suspend(job.name, job.namespace, hold=action == "suspend")[0]


def _again(reader: Reader, job: HubJob) -> HubJob:
    """A new job with the spec of an ended one. Raises BadInput where the job has not ended, or no name is free."""
    if not job.ended:
        raise BadInput("the job has not ended", "cancel it first, or let the hub retry it")
    spec = {name: value for name, value in job.spec.items() if name not in _NOT_COPIED}
    numbered = _NUMBERED.fullmatch(job.name)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (job.name, 1)
    for each in range(number + 1, number + 1 + _TRIES):
        name = f"{stem[: _LONGEST_NAME - len(str(each)) - 1].rstrip('-.')}-{each}"
        try:
            reader.hub.job(name, job.namespace)
        except Missing:
            manifest = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": name, "namespace": job.namespace}}
            return reader.hub.submit({**manifest, "spec": spec}).job
    raise BadInput(f"the names {stem}-{number + 1} to {stem}-{number + _TRIES} are taken", "submit the file under a name of your own")
