"""Cluster: a member that the hub can place gangs on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, field_validator

from tuneyard.api.base import EnvVar, Fields, KeyRef, Name, Resource, StatusFields
from tuneyard.api.limits import MOST_GPUS_PER_NODE
from tuneyard.api.moments import Moment
from tuneyard.api.quantities import Size
from tuneyard.api.shared_shards import place_error
from tuneyard.api.status import Condition


def _is_toleration(value: dict[str, Any]) -> dict[str, Any]:
    if not all(isinstance(item, str) for name, item in value.items() if name != "tolerationSeconds"):
        raise ValueError("key, operator, value and effect of a toleration are texts")
    return value


Toleration = Annotated[dict[str, Any], AfterValidator(_is_toleration)]
_TOLERATIONS = TypeAdapter(list[Toleration])


class Sku(Fields):
    """One kind of machine of a cluster."""

    name: str = Field(min_length=1, description="kind of machine by any of its names: a100-80gb, NVIDIA-H100-80GB-HBM3, mi300x, cpu")
    nodes: int = Field(ge=0, le=100_000, description="machines of this kind that the hub may use, at most")
    gpus_per_node: int = Field(ge=0, le=MOST_GPUS_PER_NODE, description="worker slots per node; processes on `cpu`")
    price_per_gpu_hour: float = Field(
        default=0.0, ge=0, description="price of one GPU (one worker slot on cpu) for an hour, in your currency"
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict,
        description="labels of the nodes of this kind; empty: nodes that offer gpuResource, unless their labels name another kind "
        "(on `cpu`: all)",
    )
    gpu_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Kubernetes resource that counts these GPUs; on `cpu`, only nodes with this resource count their slots by it; "
        "default: amd.com/gpu for AMD's kinds, nvidia.com/gpu for all others",
    )
    cpu_per_gpu: float | None = Field(
        default=None, gt=0, description="cores that a worker pod asks for, per GPU or slot; default: no request"
    )
    memory_per_gpu: Size | None = Field(
        default=None, description="host memory that a worker pod asks for, and is held to, per GPU or slot; default: no request, no limit"
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, description="tolerations of worker pods on these machines, in the form that pods have"
    )


class Network(Fields):
    """The network between the hosts of a gang."""

    interface: str | None = Field(
        default=None, description="interface for collectives, such as eth0 or bond0; default: chosen by NCCL and gloo"
    )
    bandwidth_gb_per_s: float | None = Field(
        default=None, gt=0, description="per machine, one direction, in 1e9 bytes per second; default: preflight compares with nothing"
    )
    nccl: dict[str, str] = Field(default_factory=dict, description="NCCL_* settings of every pod")


class Taint(Fields):
    """A taint of the nodes. Worker pods tolerate it; the head pod does not."""

    key: str = Field(description="key of the taint, such as nvidia.com/gpu")
    value: str = Field(default="", description="value of the taint; the same as on the nodes")
    effect: Literal["NoSchedule", "PreferNoSchedule"] = Field(
        default="NoSchedule", description="effect of the taint; NoExecute is tolerated by `skus[].tolerations` alone"
    )


class Endpoint(Fields):
    """The hub's access to the member. Without fields: the hub's own cluster, by its service account."""

    server: str | None = Field(
        default=None, description="URL of the API server, for people; the hub takes that of the kubeconfig; default: not told"
    )
    kubeconfig_secret: KeyRef | None = Field(
        default=None, description="Secret in the hub's namespace that holds the kubeconfig; default: the hub's own cluster"
    )


class Head(Fields):
    """Resources of the head pod of an attempt. It has no GPU, and runs none of the work."""

    cpu: float = Field(default=0.5, gt=0, description="cores that it asks for")
    memory: Size = Field(
        default=2 * 1024**3, description="memory that it asks for, and is held to; 1 GiB more for each further gang of a search"
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="labels of its node, such as those of machines without GPUs; empty: any node"
    )


class SharedShardsPlace(Fields):
    """Where jobs keep shards of streamed data for the next job of their team."""

    uri: str = Field(
        description="bucket, or path of a volume that `podTemplate` mounts in all pods; each team has a folder of its own in it"
    )
    size: Size | None = Field(
        default=None,
        description="bytes that a team keeps there; above it, shards that were not used for the longest time are removed; default: jobs "
        "remove none",
    )

    @field_validator("uri")
    @classmethod
    def _is_a_place(cls, value: str) -> str:
        if (wrong := place_error(value)) is not None:
            raise ValueError(wrong)
        return value


class ClusterGoal(Fields):
    """Properties of the member, and limits of the hub there."""

    endpoint: Endpoint = Field(default_factory=Endpoint)
    skus: list[Sku] = Field(min_length=1, description="kinds of machine; a node belongs to the first that matches it")
    network: Network = Field(default_factory=Network)
    storage: list[str] = Field(default_factory=list, description="URI prefixes that are near this cluster")
    shared_shards: SharedShardsPlace | None = Field(
        default=None, description="shards of streamed data that the jobs of a team share; default: each machine has its own"
    )
    taints: list[Taint] = Field(default_factory=list, description="taints of the nodes that worker pods tolerate")
    cordoned: bool = Field(default=False, description="no new gangs; running ones stay")
    local_queue: str | None = Field(
        default=None, description="LocalQueue of Kueue, in `namespace`, that admits RayJobs; default: none, RayJobs start at once"
    )
    namespace: Name = Field(default="tuneyard", description="namespace of the RayJobs")
    head: Head = Field(default_factory=Head)
    image: str | None = Field(default=None, min_length=1, description="image of jobs without their own; default: the hub's")
    image_pull_secrets: list[str] = Field(default_factory=list, description="Secrets of the member's namespace")
    shared_memory: Size = Field(default=8 * 1024**3, description="/dev/shm of a worker pod")
    scratch_storage_class: str | None = Field(default=None, description="StorageClass of the scratch volumes; default: the node's own disk")
    env: list[EnvVar] = Field(
        default_factory=list, description="environment variables of every container; secrets are taken from the member's namespace"
    )
    pod_template: dict[str, Any] = Field(
        default_factory=dict,
        description="pod template (metadata, spec) merged into every pod; its one container goes into every container",
    )

    @field_validator("pod_template")
    @classmethod
    def _has_the_shape_of_one(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not all(isinstance(value.get(part, {}), dict) for part in ("metadata", "spec")):
            raise ValueError("metadata and spec of a pod template are mappings")
        _TOLERATIONS.validate_python(value.get("spec", {}).get("tolerations", []))
        return value


class NodeInventory(StatusFields):
    """One node of a member."""

    name: str = Field(description="name of the node")
    sku: str = Field(description="kind of machine")
    gpus: int = Field(ge=0, description="GPUs, or worker slots on cpu, that the node offers")
    free: int = Field(ge=0, description="GPUs that pods of others leave; jobs of the hub are not counted here")
    ready: bool = Field(default=True, description="the node is ready and takes new pods of jobs")


class ClusterStatus(StatusFields):
    """State of the member, as the hub sees it."""

    healthy: bool = Field(default=False, description="the hub reaches the member, and can use it")
    message: str = Field(default="", description="why it is not usable, or a problem there")
    heartbeat: Moment | None = Field(default=None, description="last time the member answered (RFC 3339); absent: never")
    nodes: list[NodeInventory] = Field(default_factory=list, description="nodes that belong to a SKU of the Cluster")
    returned_at: list[Moment] = Field(default_factory=list, description="when it came back from outages lately, the latest last")
    free: str = Field(default="", description="for tables: GPUs of each SKU without pods of others, such as `h100-80gb 24/32`")
    conditions: list[Condition] = Field(default_factory=list, description="state in the form of Kubernetes conditions")


class Cluster(Resource):
    """A member: a cluster that the hub places gangs on."""

    kind: Literal["Cluster"] = Field(default="Cluster", description="always Cluster")
    spec: ClusterGoal
    status: ClusterStatus | None = Field(default=None, description="the hub's report; not written by hand")
