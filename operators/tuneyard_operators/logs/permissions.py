"""Checks the right to read a log by a SubjectAccessReview of the API server. Grants are kept for seconds, as in every aggregated API."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuneyard.cluster.log_api import LOG_GROUP, LOG_VERSION
from tuneyard_operators.kube import SUBJECT_ACCESS_REVIEW, Connection, Key
from tuneyard_operators.logs.front_proxy import Asker
from tuneyard_operators.logs.problems import Problem

_TTL_S = 10.0
_MOST_KNOWN = 10_000


class Permissions:
    """Granted rights, each kept for 10 s. Refusals are not kept."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._until: dict[tuple[Asker, Key], float] = {}

    async def check(self, asker: Asker, namespace: str, name: str) -> None:
        """Raises Problem (403) if `asker` may not read the log of a job, with the API server's own message; ApiError."""
        key = asker, (namespace, name)
        if self._until.get(key, 0.0) > self._clock():
            return
        resource = {"group": LOG_GROUP, "version": LOG_VERSION, "resource": "jobspecs", "subresource": "log"}
        asked = {**asker.to_json(), "resourceAttributes": {**resource, "verb": "get", "namespace": namespace, "name": name}}
        status = (await self._connection.create(SUBJECT_ACCESS_REVIEW, None, {"spec": asked})).get("status") or {}
        if status.get("allowed") is not True or status.get("denied") is True:
            where = f'in API group "{LOG_GROUP}" in the namespace "{namespace}"'
            said = f'jobspecs.{LOG_GROUP} "{name}" is forbidden: User "{asker.user}" cannot get resource "jobspecs/log" {where}'
            raise Problem(403, said, name=name)
        if len(self._until) >= _MOST_KNOWN:
            self._until.clear()
        self._until[key] = self._clock() + _TTL_S
