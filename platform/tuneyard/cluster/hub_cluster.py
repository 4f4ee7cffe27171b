"""A member cluster, from its Cluster object on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Cluster, ClusterStatus

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True)
class Capacity:
    """GPUs of one SKU, or worker slots on cpu.

    `total`: of the nodes, or, before the first count of nodes, of the Cluster's promise. `free`: GPUs that pods of other programs leave,
    None before the first count. `down`: on nodes that are cordoned, or not ready.
    """

    sku: str
    total: int
    free: int | None
    price_per_gpu_hour: float
    down: int = 0


@dataclass(frozen=True)
class HubCluster:
    name: str
    healthy: bool
    cordoned: bool
    capacity: tuple[Capacity, ...]
    heartbeat: datetime | None
    message: str
    storage: Mapping[str, str] = field(default_factory=dict)
    """Endpoint and region of its S3 storage, as variables: its administrators give them to every container there."""

    @property
    def endpoint(self) -> str:
        return next((self.storage[name] for name in ENDPOINTS if name in self.storage), "")


def hub_cluster(found: Mapping[str, Any]) -> HubCluster:
    """A Cluster from the API server's JSON."""
    name = found["metadata"]["name"]
    try:
        cluster = Cluster.model_validate({key: found[key] for key in ("metadata", "spec", "status") if key in found}, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return HubCluster(name, False, False, (), None, f"cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    status = cluster.status or ClusterStatus()
    return HubCluster(
        name=name,
        healthy=status.healthy,
        cordoned=cluster.spec.cordoned,
        capacity=_capacity(cluster, status),
        heartbeat=datetime.fromisoformat(status.heartbeat) if status.heartbeat else None,
        message=status.message or ("" if cluster.status else "not looked at yet by the hub's operator"),
        storage={each.name: each.value for each in cluster.spec.env if each.name in (*ENDPOINTS, *REGIONS) and each.value},
    )


def _capacity(cluster: Cluster, status: ClusterStatus) -> tuple[Capacity, ...]:
    """GPUs per SKU: of the nodes, or, before the first count, of the Cluster's promise."""
    found = []
    for sku in cluster.spec.skus:
        nodes = [node for node in status.nodes if node.sku == sku.name]
        total = sum(node.gpus for node in nodes) if status.nodes else sku.nodes * sku.gpus_per_node
        free = sum(node.free for node in nodes if node.ready) if status.nodes else None
        down = sum(node.gpus for node in nodes if not node.ready)
        found.append(Capacity(sku.name, total, free, sku.price_per_gpu_hour, down))
    return tuple(found)
