"""A person's access to the storage of a job, for its logs and its files: by the person's own credentials, else by the job's credentials, if
the person may read them.

Other people can write any variable into a job or a Secret, and libraries obey the variables of this process: they could read a token file
and send it to any server. So only keys and a region are taken from a job. The server is one that a Cluster of the hub names, because only
administrators write Clusters. The author of a job may name another server in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuneyard.api import TuneyardError
from tuneyard.api.secrets import is_secret_name
from tuneyard.cluster.errors import NotAllowed, NotInstalled
from tuneyard.cluster.hub import Hub
from tuneyard.cluster.hub_cluster import ENDPOINTS, REGIONS, HubCluster
from tuneyard.cluster.hub_job import HubJob

STORAGE_SECRET = "tuneyard-storage"
"""The Secret of a namespace that the hub gives to jobs without credentials."""
_OWN = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_SKIP_SIGNATURE")
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
"""A region is part of Amazon's host names: `x.example.com/` would name another server."""
_READ = (*KEYS, *REGIONS, *ENDPOINTS)  # Google's variable names a file in the pods, which does not exist here


class Lookup(Protocol):
    """Looks up Clusters and Secrets with the rights of the user. Raises NotAllowed, NotInstalled, Missing."""

    def clusters(self) -> Sequence[HubCluster]: ...

    def secret(self, name: str, namespace: str) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class StorageAccess:
    """Variables to add to this process's, and the reasons for missing ones."""

    variables: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def lack(self) -> str:
        """For the end of a sentence; empty where there are credentials."""
        return f"; no credentials are in the environment, and {'; '.join(self.notes)}" if self.notes else ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """With the variables in this process's environment, where stores look for credentials."""
        os.environ.update(self.variables)
        try:
            yield
        finally:
            for name in self.variables:
                os.environ.pop(name, None)


def has_own_keys(environment: Mapping[str, str]) -> bool:
    """Whether an environment names any kind of S3 credentials."""
    return any(environment.get(name) for name in _OWN)


def secrets_asked_for(env: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the Secrets that `storage_access` may look up for a job with these variables."""
    references = [(each.get("valueFrom") or {}).get("secretKeyRef") for each in env if each.get("name") in _READ]
    return list(dict.fromkeys([*(str(reference["name"]) for reference in references if reference), STORAGE_SECRET]))


def storage_access(hub: Lookup, job: HubJob, environment: Mapping[str, str]) -> StorageAccess:
    """The variables that a reader of `job` needs for its storage, beyond `environment`.

    Raises NotAllowed where the job names a server that no Cluster of the hub names: the reader decides, by AWS_ENDPOINT_URL.
    """
    if not job.output.startswith("s3://"):
        return StorageAccess()
    given = _given(hub, job.filled.get("env") or [], job.namespace, environment)
    return _access(given, _server(hub, job, given, environment), environment)


def storage_access_of_author(hub: Hub, manifest: Mapping[str, Any], uri: str, environment: Mapping[str, str]) -> StorageAccess:
    """The variables that the author of `manifest` needs to write to `uri`, beyond `environment`.

    The server is the one that the JobSpec or its ModelTemplate names (administrators write ModelTemplates, as they write Clusters). Else it
    is the server of the hub's Clusters, where all have the same.
    """
    if not uri.startswith("s3://"):
        return StorageAccess()
    namespace = manifest["metadata"].get("namespace") or hub.address.namespace
    given = _given(hub, manifest["spec"].get("env") or [], namespace, environment)
    server = {name: value for name, value in given.written.items() if name in ENDPOINTS}
    if not server and not any(environment.get(name) for name in ENDPOINTS):
        servers = {cluster.endpoint: cluster.storage for cluster in _clusters(hub)[0]}
        server = dict(next(iter(servers.values()))) if len(servers) == 1 else {}
    return _access(given, server, environment)


@dataclass(frozen=True)
class _Given:
    """Variables of storage, by their giver: the job's `env` with the Secrets that it names, and the Secret of its namespace."""

    written: Mapping[str, str]
    of_namespace: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def all(self) -> dict[str, str]:
        return {**self.of_namespace, **self.written}


def _given(hub: Lookup, env: Sequence[Mapping[str, Any]], namespace: str, environment: Mapping[str, str]) -> _Given:
    variables = [variable for variable in env if variable.get("name") in _READ]
    written = {each["name"]: str(each["value"]) for each in variables if each.get("value") is not None and not is_secret_name(each["name"])}
    if any(name in environment for name in _OWN):
        return _Given(written, {}, ())
    notes: list[str] = []
    written |= _secrets(hub, variables, namespace, notes)
    of_namespace = {} if "AWS_ACCESS_KEY_ID" in written else _read(hub, STORAGE_SECRET, namespace, notes)
    return _Given(written, of_namespace, tuple(notes))


def _access(given: _Given, server: Mapping[str, str], environment: Mapping[str, str]) -> StorageAccess:
    kept = {name: value for name, value in given.all.items() if name in KEYS or (name in REGIONS and _REGION.fullmatch(value))}
    wanted = {name: value for name, value in {**server, **kept}.items() if name not in environment}
    return StorageAccess(wanted, () if any(name in wanted for name in _OWN) else given.notes)


def _server(hub: Lookup, job: HubJob, given: _Given, environment: Mapping[str, str]) -> dict[str, str]:
    """Endpoint and region of the Cluster whose storage the job uses; nothing where the reader's environment names a server."""
    if any(environment.get(name) for name in ENDPOINTS):
        return {}
    clusters, why_none = _clusters(hub)
    asked = next((given.all[name] for name in ENDPOINTS if given.all.get(name)), "")
    if not asked:
        ran_on = job.last_attempt.placement.cluster if job.last_attempt and job.last_attempt.placement else ""
        return next((dict(cluster.storage) for cluster in clusters if cluster.name == ran_on), {})
    for cluster in clusters:
        if cluster.endpoint.rstrip("/") == asked.rstrip("/"):
            return dict(cluster.storage)
    why = why_none or "no Cluster of the hub names this server"
    lack = StorageAccess(notes=given.notes).lack
    raise NotAllowed(
        f"the storage of {job.label} is at {asked}: that is what the job says, and {why}{lack}",
        f"if you trust it with your keys: AWS_ENDPOINT_URL={asked} tuneyard logs {job.name} -n {job.namespace}",
    )


def _clusters(hub: Lookup) -> tuple[Sequence[HubCluster], str]:
    """The Clusters, or the reason why they cannot be listed."""
    try:
        return hub.clusters(), ""
    except (NotAllowed, NotInstalled) as error:
        return [], error.cause


def _secrets(hub: Lookup, variables: Sequence[Mapping[str, Any]], namespace: str, notes: list[str]) -> dict[str, str]:
    """Values of variables that refer to a Secret, or whose names say that they are one."""
    found: dict[str, str] = {}
    read: dict[str, Mapping[str, str]] = {}
    for variable in variables:
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is None:
            found[variable["name"]] = str(variable.get("value") or "")
            continue
        name, key = reference["name"], reference["key"]
        if name not in read:
            read[name] = _read(hub, name, namespace, notes)
        if key in read[name]:
            found[variable["name"]] = read[name][key]
    return found


def _read(hub: Lookup, name: str, namespace: str, notes: list[str]) -> Mapping[str, str]:
    try:
        return hub.secret(name, namespace)
    except TuneyardError as error:
        notes.append(error.cause)
        return {}
