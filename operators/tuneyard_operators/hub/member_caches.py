"""The caches of one member. They keep only the fields that decisions need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuneyard_operators.hub.attempt_records import job_of
from tuneyard_operators.hub.inventory import kept_of_foreign_pod, kept_of_node
from tuneyard_operators.kube import (
    ATTEMPT_REPORT,
    NETWORK_POLICY,
    NODE,
    POD,
    RAYJOB,
    SECRET,
    Cache,
    Connection,
    Forbidden,
    Key,
)
from tuneyard_operators.rendering import JOB, JOB_LABELS

Object = dict[str, Any]
NOBODYS: Key = ("", "")
"""Of objects that no JobSpec owns: no object has an empty name."""
OnChange = Callable[[Key, Object | None, Object | None], None]


@dataclass(frozen=True, kw_only=True)
class MemberCaches:
    """The caches of one member, by kind. `foreign`: pods that are not of this hub."""

    rayjobs: Cache
    reports: Cache
    secrets: Cache
    policies: Cache
    pods: Cache
    nodes: Cache
    foreign: Cache

    @classmethod
    def of(
        cls,
        connection: Connection,
        namespace: str,
        *,
        on_object: OnChange,
        on_report: OnChange,
        on_pod: OnChange,
        on_node: OnChange,
        on_foreign: OnChange,
    ) -> MemberCaches:
        """Caches of the objects in `namespace`, where attempts run, and of all nodes and foreign pods."""
        here = partial(Cache, connection, namespace=namespace, labels=JOB_LABELS)
        return cls(
            rayjobs=here(RAYJOB, keep=_kept_of_rayjob, on_change=on_object),
            reports=Cache(connection, ATTEMPT_REPORT, namespace=namespace, on_change=on_report),
            secrets=here(SECRET, keep=_metadata_only, on_change=on_object),
            policies=here(NETWORK_POLICY, keep=_metadata_only, on_change=on_object),
            pods=here(POD, on_change=on_pod),
            nodes=Cache(connection, NODE, on_change=on_node, keep=kept_of_node),
            foreign=Cache(connection, POD, labels=f"!{JOB}", on_change=on_foreign, keep=kept_of_foreign_pod),
        )

    @property
    def needed(self) -> tuple[Cache, ...]:
        """Caches that a usable member must serve."""
        return (self.rayjobs, self.reports, self.secrets, self.pods, self.nodes, self.foreign)

    @property
    def followed(self) -> tuple[Cache, ...]:
        """All caches."""
        return (*self.needed, self.policies)

    @property
    def isolates(self) -> bool:
        """Whether attempts get a NetworkPolicy here. A member chooses this by granting the hub the right to list NetworkPolicies."""
        return self.policies.synced.is_set() and not isinstance(self.policies.error, Forbidden)

    @property
    def listed(self) -> bool:
        """Whether all caches have been listed once. Before that, an object that is missing from a cache may exist."""
        return all(cache.synced.is_set() for cache in self.needed) and (self.isolates or isinstance(self.policies.error, Forbidden))

    @property
    def removable(self) -> tuple[Cache, ...]:
        """Caches of an attempt's objects, in the order in which the hub removes them: the RayJob last, so that a removal cut short is
        resumed.

        If the hub has lost its right to NetworkPolicies, they stay: the end of an attempt does not wait for them.
        """
        return (self.reports, self.secrets, *((self.policies,) if self.isolates else ()), self.rayjobs)

    def owners(self) -> Iterator[tuple[str, Key]]:
        """The attempt of every RayJob, Secret, NetworkPolicy and report, with the key of its job. A report without labels and without a
        RayJob, which no attempt has written, is `NOBODYS`.
        """
        for cache in self.removable:
            for key, item in cache.items.items():
                job = job_of(item)
                if job is None and cache is self.reports:
                    job = NOBODYS if key not in self.rayjobs.items else None
                if job is not None:
                    yield key[1], job


def _kept_of_rayjob(item: Object) -> Object:
    """A RayJob without its pod templates."""
    kept_status = {key: value for key, value in _mapping(item.get("status")).items() if key != "rayClusterStatus"}
    return {"metadata": {**item["metadata"], "managedFields": None}, "status": kept_status}


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _metadata_only(item: Mapping[str, Any]) -> Object:
    return {"metadata": {key: item["metadata"].get(key) for key in ("name", "namespace", "labels", "resourceVersion")}}
