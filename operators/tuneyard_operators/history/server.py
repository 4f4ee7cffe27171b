"""Serves run history beside the logs: paths, rights, and answers in the form of Kubernetes.

A reader without the right on a namespace gets the same answer for a namespace that exists, for one that does not, and for any name in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from tuneyard.api import BadInput
from tuneyard.api.base import is_dns_label
from tuneyard.cluster.history_api import HISTORY_API_VERSION, HISTORY_GROUP, HISTORY_VERSION, PAST_JOB, TRAINING_RUN, USAGE, HistoryQuery
from tuneyard.kubernetes.names import is_subdomain
from tuneyard_operators.history.reader import HistoryReader
from tuneyard_operators.kube import ApiError
from tuneyard_operators.logs.permissions import Permissions, Right
from tuneyard_operators.logs.problems import Problem

_ROOT = f"/apis/{HISTORY_GROUP}"
_HERE = f"{_ROOT}/{HISTORY_VERSION}"


@dataclass(frozen=True)
class HistoryApi:
    """The reader of a request stands in `request["asker"]`, as the front proxy has named it."""

    reader: HistoryReader
    permissions: Permissions

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(_ROOT, _group)
        app.router.add_get(_HERE, _resources)
        for where in ("", "/namespaces/{namespace}"):
            app.router.add_get(f"{_HERE}{where}/{PAST_JOB.plural}", self._list)
            app.router.add_get(f"{_HERE}{where}/{USAGE.plural}", self._usage)
            app.router.add_get(f"{_HERE}{where}/{TRAINING_RUN.plural}", self._training_runs)
        app.router.add_get(f"{_HERE}/namespaces/{{namespace}}/{PAST_JOB.plural}/{{name}}", self._one)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        namespace, query = await self._allowed(request, "list", PAST_JOB.plural)
        jobs, after = await self._asked(self.reader.page(namespace, query))
        items = [_object(job) for job in jobs]
        return _json({"kind": "PastJobList", "apiVersion": HISTORY_API_VERSION, "metadata": {"continue": after}, "items": items})

    async def _training_runs(self, request: web.Request) -> web.StreamResponse:
        namespace, query = await self._allowed(request, "list", TRAINING_RUN.plural)
        runs, after = await self._asked(self.reader.training_runs(namespace, query))
        items = [_training_run(run) for run in runs]
        return _json({"kind": "TrainingRunList", "apiVersion": HISTORY_API_VERSION, "metadata": {"continue": after}, "items": items})

    async def _one(self, request: web.Request) -> web.StreamResponse:
        namespace, _ = await self._allowed(request, "get", PAST_JOB.plural)
        return _json(_object(await self._asked(self.reader.job(namespace, request.match_info["name"]))))

    async def _usage(self, request: web.Request) -> web.StreamResponse:
        namespace, query = await self._allowed(request, "list", USAGE.plural)
        return _json(
            {
                "kind": "UsageList",
                "apiVersion": HISTORY_API_VERSION,
                "metadata": {},
                **await self._asked(self.reader.usage(namespace, query)),
            }
        )

    async def _allowed(self, request: web.Request, verb: str, resource: str) -> tuple[str, HistoryQuery]:
        """Namespace and query of a request. Raises Problem: 404 for impossible names, 400 for wrong parameters, 403 without the right."""
        namespace, name = request.match_info.get("namespace", ""), request.match_info.get("name", "")
        if (namespace and not is_dns_label(namespace)) or (name and not is_subdomain(name)):
            raise Problem(404, "no job can have this name")
        try:
            query = HistoryQuery.parse(request.query.items())
        except BadInput as error:
            raise Problem(400, f"{error.cause}{f': {error.next_step}' if error.next_step else ''}") from error
        right = Right(group=HISTORY_GROUP, version=HISTORY_VERSION, verb=verb, resource=resource, namespace=namespace, name=name)
        await self._asked(self.permissions.check(request["asker"], right))
        return namespace, query

    async def _asked(self, answer: Any) -> Any:
        try:
            return await answer
        except ApiError as error:
            raise Problem(503, f"the hub cannot ask its API server: {error}", retry_after_s=1) from error


def _object(job: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": job["name"], "namespace": job["namespace"], "uid": job["uid"], "creationTimestamp": job["started_at"]}
    return {"apiVersion": HISTORY_API_VERSION, "kind": PAST_JOB.name, "metadata": metadata, "run": job}


def _training_run(run: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": run["id"], "namespace": run["namespace"], "creationTimestamp": run["started_at"]}
    return {"apiVersion": HISTORY_API_VERSION, "kind": TRAINING_RUN.name, "metadata": metadata, "run": run}


async def _group(_request: web.Request) -> web.Response:
    version = {"groupVersion": HISTORY_API_VERSION, "version": HISTORY_VERSION}
    return _json({"kind": "APIGroup", "apiVersion": "v1", "name": HISTORY_GROUP, "versions": [version], "preferredVersion": version})


async def _resources(_request: web.Request) -> web.Response:
    jobs = {"name": PAST_JOB.plural, "singularName": "pastjob", "namespaced": True, "kind": PAST_JOB.name, "verbs": ["get", "list"]}
    usages = {"name": USAGE.plural, "singularName": "usage", "namespaced": True, "kind": USAGE.name, "verbs": ["list"]}
    runs = {"name": TRAINING_RUN.plural, "singularName": "trainingrun", "namespaced": True, "kind": TRAINING_RUN.name, "verbs": ["list"]}
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": HISTORY_API_VERSION, "resources": [jobs, runs, usages]})


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
