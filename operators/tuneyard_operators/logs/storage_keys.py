"""Finds the keys of a job's storage: the keys of its own pods; the hub's own only for a place that the hub chose.

In this order: the keys in the Secrets that the job names, or in its namespace's Secret; the keys of the member that it ran on last; the
hub's own identity. The hub's identity opens only folders that the hub has chosen itself, below its `--output`: otherwise an author could
name another team's folder as `storage.output`, and read it. The rules for keys, regions and servers are the client's
(`tuneyard.cluster.storage_access`): a server is used only if a Cluster names it.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cluster.errors import Missing as NoSuchSecret
from tuneyard.cluster.errors import NotAllowed
from tuneyard.cluster.hub_cluster import ENDPOINTS, HubCluster, hub_cluster
from tuneyard.cluster.hub_job import HubJob
from tuneyard.cluster.log_api import STORAGE_NOT_READABLE
from tuneyard.cluster.storage_access import KEYS, has_own_keys, secrets_asked_for, storage_access
from tuneyard.kubernetes import Unauthenticated
from tuneyard.kubernetes.names import is_subdomain
from tuneyard.storage import scheme_of
from tuneyard_operators.kube import CLUSTER, SECRET, Connection, Forbidden, Missing
from tuneyard_operators.logs.member_keys import MemberKeys, NoKeys
from tuneyard_operators.logs.problems import Problem
from tuneyard_operators.logs.storage import LogStorage, with_identity, with_keys

_TTL_S = 30.0
_MOST_KNOWN = 1000
_READABLE = ("s3", "gs")
_DIRECTLY = "read it directly, with keys of your own: tuneyard logs does so where your environment has them"


@dataclass(frozen=True)
class _Looked:
    """The inputs of a lookup for one job: Clusters, and Secrets by name, each with its values or the error of reading it."""

    items: Sequence[Mapping[str, Any]]
    secrets: Mapping[str, Mapping[str, str] | TuneyardError]

    def clusters(self) -> Sequence[HubCluster]:
        return [hub_cluster(item) for item in self.items]

    def cluster(self, name: str) -> Mapping[str, Any] | None:
        return next((item for item in self.items if item["metadata"]["name"] == name), None)

    def secret(self, name: str, _namespace: str) -> Mapping[str, str]:
        found = self.secrets[name]
        if isinstance(found, TuneyardError):
            raise found
        return found


class StorageKeys:
    """Opens the storage of jobs, and keeps it open for 30 s. `output`: the URI below which the hub chooses folders."""

    def __init__(self, connection: Connection, members: MemberKeys, output: str, environment: Mapping[str, str]) -> None:
        self._connection = connection
        self._members = members
        self._output = output
        self._environment = environment
        self._open: dict[tuple[str, ...], tuple[float, LogStorage]] = {}

    async def open(self, job: HubJob) -> LogStorage:
        """The storage of a job's output. Raises Problem (400) if the hub cannot read it; ApiError."""
        key = (job.namespace, job.name, job.uid, str(job.generation), job.output, str(job.last_attempt and job.last_attempt.number))
        until, storage = self._open.get(key, (0.0, None))
        if storage is None or until < time.monotonic():
            storage = await self._opened(job)
            if len(self._open) >= _MOST_KNOWN:
                self._open.clear()
            self._open[key] = time.monotonic() + _TTL_S, storage
        return storage

    async def open_data(self, job: HubJob) -> LogStorage:
        """The storage of data that a job is going to read, at `job.output`, with keys that its pods have on every member that may run it.

        The hub's own identity is never used: an author could name another team's data. Raises Problem (400) if the hub cannot read the
        storage; ApiError.
        """
        if scheme_of(job.output) != "s3":
            why = f"the hub looks for data on S3 and over webhdfs:// alone, and this is {scheme_of(job.output)}://"
            raise _no_way(why, "leave waitFor out, or use one of these")
        looked = await self._look(job)
        try:
            access = storage_access(looked, job, {})
            server = {} if any(name in access.variables for name in ENDPOINTS) else _common_server(looked)
            if "AWS_ACCESS_KEY_ID" in access.variables:
                return with_keys(job.output, {**server, **access.variables})
            whys = [*access.notes]
            for name in (job.filled.get("placement") or {}).get("clusters") or [item["metadata"]["name"] for item in looked.items]:
                cluster = looked.cluster(name)
                if cluster is None:
                    continue
                try:
                    own = next(each for each in looked.clusters() if each.name == name)
                    return with_keys(job.output, {**own.storage, **_without_keys(access.variables), **await self._members.of(cluster)})
                except NoKeys as error:
                    whys.append(str(error))
        except NotAllowed as error:
            raise _no_way(error.cause.partition("; no credentials")[0], error.next_step) from error
        except BadInput as error:
            raise _no_way(error.cause, error.next_step) from error
        raise _no_way(f"the hub has no keys for it: {'; '.join(whys) or 'none'}", "name a Secret with keys in template.spec.env")

    async def _opened(self, job: HubJob) -> LogStorage:
        scheme = scheme_of(job.output)
        if scheme not in _READABLE:
            where = "a path of its pods' machines" if scheme == "file" else f"{scheme}://, which the hub does not read"
            raise _no_way(f"the output of {job.label} is {where}", "read it there")
        looked = await self._look(job)
        try:
            access = storage_access(looked, job, {})
            if "AWS_ACCESS_KEY_ID" in access.variables:
                return with_keys(job.output, access.variables)
            keys, why_none = await self._of_member(looked, job) if scheme == "s3" else ({}, "")
            if keys:
                return with_keys(job.output, {**_without_keys(access.variables), **keys})
            if self._is_chosen(job) and self._has_identity(scheme):
                own = storage_access(looked, job, self._environment)
                return with_identity(job.output, {**self._environment, **own.variables})
        except NotAllowed as error:
            raise _no_way(error.cause.partition("; no credentials")[0], error.next_step) from error
        except BadInput as error:
            raise _no_way(error.cause, error.next_step) from error
        whys = [*access.notes, why_none]
        raise _no_way(f"the hub has no keys for the storage of {job.label}: {'; '.join(why for why in whys if why) or 'none'}", _DIRECTLY)

    async def _of_member(self, looked: _Looked, job: HubJob) -> tuple[Mapping[str, str], str]:
        """Keys of the member that the job ran on last, or the reason why there are none."""
        ran_on = job.last_attempt.placement.cluster if job.last_attempt and job.last_attempt.placement else ""
        cluster = looked.cluster(ran_on)
        if cluster is None:
            return {}, ""
        try:
            return await self._members.of(cluster), ""
        except NoKeys as error:
            return {}, str(error)

    def _is_chosen(self, job: HubJob) -> bool:
        """Whether the hub has chosen this output: `goals.output_of` composes it from namespace, name and uid."""
        named = (job.filled.get("storage") or {}).get("output")
        return not named and bool(self._output) and job.output == f"{self._output.rstrip('/')}/{job.label}-{job.uid[:8]}"

    def _has_identity(self, scheme: str) -> bool:
        return has_own_keys(self._environment) if scheme == "s3" else bool(self._environment.get("GOOGLE_APPLICATION_CREDENTIALS"))

    async def _look(self, job: HubJob) -> _Looked:
        names = secrets_asked_for(job.filled.get("env") or [])
        clusters = await self._connection.list(CLUSTER)
        found = await asyncio.gather(*(self._secret(name, job.namespace) for name in names))
        return _Looked(clusters["items"], dict(zip(names, found, strict=True)))

    async def _secret(self, name: str, namespace: str) -> Mapping[str, str] | TuneyardError:
        if not is_subdomain(name):
            return NoSuchSecret(f"{name[:100]!r} is no name of a Secret")
        try:
            data: Mapping[str, Any] = (await self._connection.get(SECRET, namespace, name)).get("data") or {}
        except Missing:
            return NoSuchSecret(f"the Secret {name} of namespace {namespace} does not exist")
        except Unauthenticated:
            raise
        except Forbidden:
            return NoSuchSecret(f"the Secret {name} of namespace {namespace} may not be read by the hub")
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _common_server(looked: _Looked) -> dict[str, str]:
    """Endpoint and region of the Clusters' storage, where all have the same."""
    servers = {cluster.endpoint: dict(cluster.storage) for cluster in looked.clusters()}
    return next(iter(servers.values())) if len(servers) == 1 else {}


def _without_keys(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in KEYS}


def _no_way(message: str, next_step: str) -> Problem:
    return Problem(400, message, cause=STORAGE_NOT_READABLE, next_step=next_step)
