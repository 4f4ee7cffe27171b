"""How the reader of a job's logs gets at its storage: their own credentials, else those that the job was given, if they may read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.api.secrets import is_secret_name
from tuneyard.cluster.hub import Hub
from tuneyard.cluster.hub_job import HubJob

STORAGE_SECRET = "tuneyard-storage"
"""The Secret of a namespace that the hub gives to jobs which name no credentials."""
_OWN = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_SKIP_SIGNATURE")
_PREFIX = "AWS_"  # Google's variable names a file, which lies in the pods and not here


@dataclass(frozen=True)
class StorageAccess:
    """Variables to add to this process's, and why more could not be found."""

    variables: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def storage_access(hub: Hub, job: HubJob, environment: Mapping[str, str]) -> StorageAccess:
    """What the storage of `job` needs beyond `environment`.

    Where the store is (endpoint, region) is taken from the job, since its output is there; who asks only where the environment does
    not say.
    """
    if not job.output.startswith("s3://"):
        return StorageAccess()
    notes: list[str] = []
    found = dict(_plain(job))
    if not any(name in environment for name in _OWN):
        found |= _secrets(hub, job, notes)
        if "AWS_ACCESS_KEY_ID" not in found:
            found = {**_read(hub, STORAGE_SECRET, job.namespace, notes), **found}
    wanted = {name: value for name, value in found.items() if name.startswith(_PREFIX) and name not in environment}
    return StorageAccess(wanted, () if any(name in wanted for name in _OWN) else tuple(notes))


def _variables(job: HubJob) -> Iterator[Mapping[str, Any]]:
    yield from (variable for variable in job.spec.get("env") or [] if str(variable.get("name", "")).startswith(_PREFIX))


def _plain(job: HubJob) -> Iterator[tuple[str, str]]:
    for variable in _variables(job):
        if variable.get("value") is not None and not is_secret_name(variable["name"]):
            yield variable["name"], variable["value"]


def _secrets(hub: Hub, job: HubJob, notes: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    read: dict[str, dict[str, str]] = {}
    for variable in _variables(job):
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is None:
            found[variable["name"]] = str(variable.get("value") or "")
            continue
        name, key = reference["name"], reference["key"]
        if name not in read:
            read[name] = _read(hub, name, job.namespace, notes)
        if key in read[name]:
            found[variable["name"]] = read[name][key]
    return found


def _read(hub: Hub, name: str, namespace: str, notes: list[str]) -> dict[str, str]:
    try:
        return hub.secret(name, namespace)
    except TuneyardError as error:
        notes.append(error.cause)
        return {}
