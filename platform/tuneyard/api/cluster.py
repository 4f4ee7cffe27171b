"""Cluster: a member that the hub can place gangs on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from tuneyard.api.base import Fields, KeyRef, Resource
from tuneyard.api.status import Condition


class Sku(Fields):
    """One kind of machine of a cluster."""

    name: str = Field(min_length=1, description="such as a100-80gb, h100-80gb, cpu")
    nodes: int = Field(ge=0)
    gpus_per_node: int = Field(ge=0, description="worker slots per node; processes on `cpu`")
    price_per_gpu_hour: float = Field(default=0.0, ge=0)
    node_selector: dict[str, str] = Field(default_factory=dict)
    gpu_resource: str = Field(default="nvidia.com/gpu", description="name of the Kubernetes resource that counts these GPUs")


class Network(Fields):
    interface: str | None = Field(default=None, description="interface for collectives, such as eth0 or bond0")
    bandwidth_gb_per_s: float | None = Field(default=None, gt=0, description="per machine, one direction, in 1e9 bytes per second")
    nccl: dict[str, str] = Field(default_factory=dict, description="NCCL_* settings of every pod")


class Taint(Fields):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule"] = "NoSchedule"


class Endpoint(Fields):
    server: str | None = Field(default=None, description="URL of the API server; default: the hub's own")
    kubeconfig_secret: KeyRef | None = None


class ClusterGoal(Fields):
    endpoint: Endpoint = Field(default_factory=Endpoint)
    skus: list[Sku] = Field(min_length=1)
    network: Network = Field(default_factory=Network)
    storage: list[str] = Field(default_factory=list, description="URI prefixes that are near this cluster")
    taints: list[Taint] = Field(default_factory=list)
    cordoned: bool = Field(default=False, description="no new gangs; running ones stay")
    local_queue: str | None = Field(default=None, description="Kueue queue that RayJobs are labelled with")
    namespace: str = Field(default="tuneyard", description="where RayJobs are created")
    pod_template: dict[str, Any] = Field(default_factory=dict, description="merged into every pod: tolerations, volumes, runtime class")


class NodeInventory(Fields):
    name: str
    sku: str
    gpus: int = Field(ge=0)
    free: int = Field(ge=0)
    ready: bool = True


class ClusterStatus(Fields):
    model_config = ConfigDict(extra="ignore")

    healthy: bool = False
    message: str = ""
    heartbeat: str | None = None
    nodes: list[NodeInventory] = Field(default_factory=list)
    conditions: list[Condition] = Field(default_factory=list)


class Cluster(Resource):
    """A member cluster."""

    kind: Literal["Cluster"] = "Cluster"
    spec: ClusterGoal
    status: ClusterStatus | None = None
