"""Cluster: a member that the hub can place gangs on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from tuneyard.api.base import EnvVar, Fields, KeyRef, Resource
from tuneyard.api.quantities import Size
from tuneyard.api.status import Condition


class Sku(Fields):
    """One kind of machine of a cluster."""

    name: str = Field(min_length=1, description="such as a100-80gb, h100-80gb, cpu")
    nodes: int = Field(ge=0)
    gpus_per_node: int = Field(ge=0, description="worker slots per node; processes on `cpu`")
    price_per_gpu_hour: float = Field(default=0.0, ge=0)
    node_selector: dict[str, str] = Field(default_factory=dict)
    gpu_resource: str = Field(
        default="nvidia.com/gpu",
        description="Kubernetes resource that counts these GPUs; on `cpu` slots are counted by it only where nodes have it",
    )
    cpu_per_gpu: float | None = Field(default=None, gt=0, description="cores that a worker pod asks for, per GPU or slot")
    memory_per_gpu: Size | None = Field(default=None, description="host memory that a worker pod asks for, and is held to, per GPU or slot")
    tolerations: list[dict[str, Any]] = Field(default_factory=list, description="of pods on these machines, as in a pod")


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


class Head(Fields):
    """What the head pod of an attempt asks for; it has no GPU, and runs none of the work."""

    cpu: float = Field(default=0.5, gt=0)
    memory: Size = 2 * 1024**3
    node_selector: dict[str, str] = Field(default_factory=dict, description="machines without GPUs, where there are some")


class ClusterGoal(Fields):
    endpoint: Endpoint = Field(default_factory=Endpoint)
    skus: list[Sku] = Field(min_length=1)
    network: Network = Field(default_factory=Network)
    storage: list[str] = Field(default_factory=list, description="URI prefixes that are near this cluster")
    taints: list[Taint] = Field(default_factory=list)
    cordoned: bool = Field(default=False, description="no new gangs; running ones stay")
    local_queue: str | None = Field(default=None, description="Kueue queue that RayJobs are labelled with")
    namespace: str = Field(default="tuneyard", description="where RayJobs are created")
    head: Head = Field(default_factory=Head)
    image: str | None = Field(default=None, min_length=1, description="image of jobs that name none; default: the hub's")
    image_pull_secrets: list[str] = Field(default_factory=list, description="Secrets of the member's namespace")
    shared_memory: Size = Field(default=8 * 1024**3, description="/dev/shm of a worker pod")
    scratch_storage_class: str | None = Field(default=None, description="class of the scratch volumes; default: the node's own disk")
    env: list[EnvVar] = Field(default_factory=list, description="of every container; secrets are taken from the member's namespace")
    pod_template: dict[str, Any] = Field(
        default_factory=dict,
        description="pod template (metadata, spec) merged into every pod; its one container goes into every container",
    )


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
    returned_at: list[str] = Field(default_factory=list, description="when it came back from outages lately, the latest last")
    free: str = Field(default="", description="for tables: what others leave of each SKU, such as `h100-80gb 24/32`")
    conditions: list[Condition] = Field(default_factory=list)


class Cluster(Resource):
    """A member cluster."""

    kind: Literal["Cluster"] = "Cluster"
    spec: ClusterGoal
    status: ClusterStatus | None = None
