"""Serves the API of logs over HTTP: its paths, the reader of each request, and a Kubernetes Status for every failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from tuneyard.api import BadInput, StorageError
from tuneyard.api.base import is_dns_label
from tuneyard.cluster.hub_job import HubJob, hub_job
from tuneyard.cluster.log_api import LOG_API_VERSION, LOG_GROUP, LOG_KIND, LOG_VERSION, STORAGE_FAILED, LogAnswer, LogQuery
from tuneyard.kubernetes.names import is_subdomain
from tuneyard_operators.kube import JOBSPEC, ApiError, Connection, Missing
from tuneyard_operators.logs.front_proxy import FrontProxy, asker_of
from tuneyard_operators.logs.limits import Limits
from tuneyard_operators.logs.log_reader import read_answer
from tuneyard_operators.logs.permissions import Permissions, log_right
from tuneyard_operators.logs.plain_text import as_text
from tuneyard_operators.logs.problems import Problem
from tuneyard_operators.logs.storage_keys import StorageKeys

log = logging.getLogger(__name__)
ANSWER_S = 20.0
"""Longest time for an answer. API servers and readers wait for a minute."""
_ROOT = f"/apis/{LOG_GROUP}"
_LATER = "try again in a minute; tuneyard logs -f does so by itself"
Gone = Callable[[str, str, str], Awaitable[dict[str, Any] | None]]
"""A job in the form of a JobSpec, by namespace, name and uid; without a uid, the newest of the name."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class LogApi:
    """`proxy`: the trusted front proxy now; `count`: called with the code of each answer; `gone`: finds jobs whose JobSpecs are gone."""

    connection: Connection
    keys: StorageKeys
    permissions: Permissions
    limits: Limits
    proxy: Callable[[], FrontProxy]
    count: Callable[[int], None]
    gone: Gone | None = None

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/openapi/v2", _no_schemas)
        app.router.add_get("/openapi/v3", _no_schemas)
        app.router.add_get(_ROOT, _group)
        app.router.add_get(f"{_ROOT}/{LOG_VERSION}", _resources)
        app.router.add_get(f"{_ROOT}/{LOG_VERSION}/namespaces/{{namespace}}/jobspecs/{{name}}/log", self._log)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every answer except 401 requires the certificate of the front proxy, even a 404."""
        try:
            transport = request.transport
            certificate = transport.get_extra_info("peercert") if transport is not None else None
            request["asker"] = asker_of(request.headers, certificate, self.proxy())
            answer = await handler(request)
        except Problem as problem:
            answer = _json(problem.to_json(), problem.code, problem.headers)
        except web.HTTPException as error:
            answer = _json(Problem(error.status, f"{request.method} {request.path[:200]}: {error.reason}").to_json(), error.status)
        except Exception:  # one broken object must not take the API away from the others
            log.exception("%s cannot be answered", request.path[:200])
            answer = _json(Problem(500, "the hub failed to answer: its own log has the error").to_json(), 500)
        self.count(answer.status)
        return answer

    async def _log(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not (is_dns_label(namespace) and is_subdomain(name)):
            raise Problem(404, "no JobSpec can have this name")
        try:
            query = LogQuery.parse(request.query.items())
        except BadInput as error:
            raise Problem(400, f"{error.cause}{f': {error.next_step}' if error.next_step else ''}", name=name) from error
        with self.limits.question():
            try:
                await self.permissions.check(request["asker"], log_right(namespace, name))
                answer = await self._answer(await self._job(namespace, name, query), query)
            except ApiError as error:
                raise Problem(503, f"the hub cannot ask its API server: {error}", name=name, retry_after_s=1) from error
        if query.as_text:
            return web.Response(text=await asyncio.to_thread(as_text, answer))  # control characters take up to half a second
        return _json(answer.to_json(namespace, name))

    async def _job(self, namespace: str, name: str, query: LogQuery) -> HubJob:
        """The JobSpec of the name and uid, or its record. The right that was checked is that on the name in its namespace, for both."""
        try:
            job = hub_job(await self.connection.get(JOBSPEC, namespace, name))
            newer = f'jobspecs.{LOG_GROUP} "{name}" not found: a newer job has its name'
        except Missing:
            job, newer = None, f'jobspecs.{LOG_GROUP} "{name}" not found'
        if job is not None and query.uid in ("", job.uid):
            return job
        gone = await self.gone(namespace, name, query.uid) if self.gone is not None else None
        if gone is None:
            raise Problem(404, newer, name=name)
        return hub_job(gone)

    async def _answer(self, job: HubJob, query: LogQuery) -> LogAnswer:
        attempts = {attempt.number: attempt for attempt in job.status.attempts}
        number = query.attempt or max(attempts, default=0)
        if number not in attempts or not job.output:
            what = f"has no attempt {query.attempt}" if query.attempt else f"has no attempt yet: {job.phase}"
            raise Problem(404, f"{job.label} {what}", name=job.name)
        storage = await self.keys.open(job)
        try:
            with self.limits.of(storage.server):
                async with asyncio.timeout(ANSWER_S):
                    return await read_answer(storage, attempts[number].task, number, query)
        except StorageError as error:
            raise _failed(error.cause, job) from error
        except TimeoutError:
            raise _failed(f"the storage at {storage.server} has not answered within {ANSWER_S:g} s", job) from None


async def _group(_request: web.Request) -> web.Response:
    version = {"groupVersion": LOG_API_VERSION, "version": LOG_VERSION}
    return _json({"kind": "APIGroup", "apiVersion": "v1", "name": LOG_GROUP, "versions": [version], "preferredVersion": version})


async def _no_schemas(_request: web.Request) -> web.Response:
    """An empty schema. Without an answer, API servers ask again and again, and log each failure."""
    return _json({"swagger": "2.0", "info": {"title": LOG_GROUP, "version": LOG_VERSION}, "paths": {}})


async def _resources(_request: web.Request) -> web.Response:
    log_of_one = {"name": "jobspecs/log", "singularName": "", "namespaced": True, "kind": LOG_KIND, "verbs": ["get"]}
    # The parent resource has no verbs. `kubectl auth can-i` needs it, to look up the subresource.
    parent = {**log_of_one, "name": "jobspecs", "verbs": []}
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": LOG_API_VERSION, "resources": [parent, log_of_one]})


def _failed(cause: str, job: HubJob) -> Problem:
    return Problem(503, f"the hub cannot read the log of {job.label}: {cause}", name=job.name, cause=STORAGE_FAILED, next_step=_LATER)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, headers=headers, content_type="application/json")
