"""Nodes that exist in the API server alone: for the scheduler, and for whoever counts GPUs. Pods bound to them never start."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.testcluster.kubeapi import KubeApi


@dataclass(frozen=True)
class FakeNodes:
    """`count` machines of one kind, called `<prefix>-0`, `<prefix>-1`, …"""

    prefix: str
    count: int
    gpus: int = 8
    gpu_resource: str = "nvidia.com/gpu"
    labels: dict[str, str] = field(default_factory=dict)
    cpu: int = 96
    memory: str = "1Ti"
    taints: tuple[dict[str, str], ...] = ()

    def names(self) -> list[str]:
        return [f"{self.prefix}-{number}" for number in range(self.count)]

    def manifest(self, name: str) -> dict[str, Any]:
        room = {"cpu": str(self.cpu), "memory": self.memory, "pods": "110", "ephemeral-storage": "4Ti", self.gpu_resource: str(self.gpus)}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **self.labels}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": list(self.taints)},
            "status": {"capacity": room, "allocatable": room, "conditions": [_ready("True")]},
        }


def add(api: KubeApi, kinds: Iterable[FakeNodes]) -> None:
    manifests = [nodes.manifest(name) for nodes in kinds for name in nodes.names()]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda manifest: _add(api, manifest), manifests):
            pass


def _add(api: KubeApi, manifest: dict[str, Any]) -> None:
    api.create("/api/v1/nodes", manifest)
    # Admission taints every new node as not ready, until a node lifecycle controller, which does not run here, has seen it.
    api.patch(f"/api/v1/nodes/{manifest['metadata']['name']}", {"spec": {"taints": manifest["spec"]["taints"]}})


def set_ready(api: KubeApi, name: str, *, ready: bool) -> None:
    """Mark a fake node, as the node lifecycle controller does with a real one that is silent or back."""
    api.call(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": {"conditions": [_ready("True" if ready else "Unknown")]}},
        content_type="application/strategic-merge-patch+json",
    )
    taints = [] if ready else [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


def _ready(status: str) -> dict[str, str]:
    reason = "KubeletReady" if status == "True" else "NodeStatusUnknown"
    return {"type": "Ready", "status": status, "reason": reason, "message": "a fake node"}
