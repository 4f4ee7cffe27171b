"""Checks the rights of readers by SubjectAccessReviews of the API server. Grants are kept for seconds, as in every aggregated API."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tuneyard.cluster.log_api import LOG_GROUP, LOG_VERSION
from tuneyard_operators.kube import SUBJECT_ACCESS_REVIEW, Connection
from tuneyard_operators.logs.front_proxy import Asker
from tuneyard_operators.logs.problems import Problem

_TTL_S = 10.0
_MOST_KNOWN = 10_000


@dataclass(frozen=True, kw_only=True)
class Right:
    """The right to a request; `namespace` is empty for objects of all namespaces, `name` for all of a namespace."""

    group: str
    version: str
    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def to_json(self) -> dict[str, str]:
        given = {"subresource": self.subresource, "namespace": self.namespace, "name": self.name}
        needed = {"group": self.group, "version": self.version, "verb": self.verb, "resource": self.resource}
        return needed | {key: value for key, value in given.items() if value}

    def refusal(self, user: str) -> str:
        """The API server's own message."""
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f'{self.resource}.{self.group} "{self.name}"' if self.name else f"{self.resource}.{self.group}"
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{named} is forbidden: User "{user}" cannot {self.verb} resource "{what}" in API group "{self.group}" {where}'


def log_right(namespace: str, name: str) -> Right:
    return Right(group=LOG_GROUP, version=LOG_VERSION, verb="get", resource="jobspecs", subresource="log", namespace=namespace, name=name)


class Permissions:
    """Granted rights, each kept for 10 s. Refusals are not kept."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._until: dict[tuple[Asker, Right], float] = {}

    async def check(self, asker: Asker, right: Right) -> None:
        """Raises Problem (403) if `asker` lacks the right, with the API server's own message; ApiError."""
        key = asker, right
        if self._until.get(key, 0.0) > self._clock():
            return
        asked = {**asker.to_json(), "resourceAttributes": right.to_json()}
        status = (await self._connection.create(SUBJECT_ACCESS_REVIEW, None, {"spec": asked})).get("status") or {}
        if status.get("allowed") is not True or status.get("denied") is True:
            raise Problem(403, right.refusal(asker.user), name=right.name if right.group == LOG_GROUP else "")
        if len(self._until) >= _MOST_KNOWN:
            self._until.clear()
        self._until[key] = self._clock() + _TTL_S
