"""The writes of a job's life by themselves, with the bodies that a hub writes: what a benchmark holds the hub beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.clusters.hubs import JOBS, job, rayjobs
from tests.testcluster.clusters import Clusters

from tuneyard_operators.kube import JOBSPEC, NETWORK_POLICY, RAYJOB, Connection

Object = dict[str, Any]
LABELS = {"raw": "yes"}


@dataclass(frozen=True)
class Bodies:
    """Of one job, as a hub has written them."""

    status: Object
    rayjob: Object
    policy: Object

    @classmethod
    def of(cls, clusters: Clusters, name: str) -> Bodies:
        """Of a job that has started. Raises StopIteration where no member has its RayJob."""
        status = job(clusters.hub, name)["status"]
        attempt = status["attempts"][-1]["name"]
        member = next(each for each in clusters.members if each.name == status["placement"]["cluster"])
        made = next(each for each in rayjobs(member) if each["metadata"]["name"] == attempt)
        policy = member.api.get(f"/apis/networking.k8s.io/v1/namespaces/{JOBS}/networkpolicies/{attempt}")
        return cls(status, made["spec"], policy["spec"])

    async def begin(self, hub: Connection, member: Connection, name: str, jobspec: Object) -> None:
        """JobSpec, the status that records its placement, NetworkPolicy and RayJob."""
        await hub.create(JOBSPEC, "default", {"metadata": jobspec["metadata"], "spec": jobspec["spec"]})
        await hub.patch(JOBSPEC, "default", name, {"status": self.status}, subresource="status", brief=True)
        metadata = {"name": name, "labels": LABELS}
        await member.create(NETWORK_POLICY, JOBS, {"metadata": metadata, "spec": self.policy}, brief=True)
        await member.create(RAYJOB, JOBS, {"metadata": metadata, "spec": self.rayjob}, brief=True)

    async def tell(self, hub: Connection, name: str, message: str) -> None:
        """Another status."""
        await hub.patch(JOBSPEC, "default", name, {"status": {**self.status, "message": message}}, subresource="status", brief=True)
