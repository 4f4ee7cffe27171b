"""Nodes and pods of a member as what a scheduler counts: slots per node, and which of them others hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tuneyard.api import Cluster, NodeInventory, Sku

Object = Mapping[str, Any]


def inventory(cluster: Cluster, nodes: Iterable[Object], foreign_pods: Iterable[Object]) -> list[NodeInventory]:
    """The nodes of a member that belong to one of its SKUs. `free`: what pods of others leave; attempts of the hub are not counted here."""
    foreign = list(foreign_pods)
    found = []
    for node in nodes:
        sku = next((sku for sku in cluster.spec.skus if _belongs(node, sku)), None)
        if sku is None:
            continue
        slots = _slots(node, sku)
        taken = sum(_asked(pod, sku.gpu_resource) for pod in foreign if pod["spec"].get("nodeName") == node["metadata"]["name"])
        ready = is_ready(node) and not _closed(node, cluster, sku)
        found.append(NodeInventory(name=hostname(node), sku=sku.name, gpus=slots, free=max(0, slots - taken) if ready else 0, ready=ready))
    return _at_most(found, cluster)


def hostname(node: Object) -> str:
    """What pods are bound by; nearly always the node's own name."""
    return str(node["metadata"].get("labels", {}).get("kubernetes.io/hostname", node["metadata"]["name"]))


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def kept_of_node(node: dict[str, Any]) -> dict[str, Any]:
    """What the hub needs of a node: without the list of images, some tens of KB."""
    status = node.get("status", {})
    ready = [{"type": c["type"], "status": c["status"]} for c in status.get("conditions") or [] if c["type"] == "Ready"]
    metadata = {key: node["metadata"].get(key) for key in ("name", "labels", "resourceVersion") if node["metadata"].get(key)}
    kept_status = {"conditions": ready, "allocatable": status.get("allocatable", {})}
    spec = {key: node["spec"][key] for key in ("unschedulable", "taints") if key in node.get("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": kept_status}


def kept_of_foreign_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """What the hub needs of a pod that is not its own: where it is, and which extended resources it holds."""
    asked: Counter[str] = Counter()
    if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
        for container in pod["spec"].get("containers", []):
            for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in resource and str(amount).isdigit():
                    asked[resource] += int(amount)
    metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "resourceVersion")}
    return {"metadata": metadata, "spec": {"nodeName": pod["spec"].get("nodeName")}, "asked": dict(asked)}


def _belongs(node: Object, sku: Sku) -> bool:
    labels = node["metadata"].get("labels", {})
    if sku.node_selector:
        return all(labels.get(key) == value for key, value in sku.node_selector.items())
    return _allocatable(node, sku.gpu_resource) > 0 or sku.name == "cpu"


def _slots(node: Object, sku: Sku) -> int:
    """Slots by what the node offers; on cpu, where nodes count none, by what the Cluster says."""
    offered = _allocatable(node, sku.gpu_resource)
    return offered if offered or sku.name != "cpu" else sku.gpus_per_node


def _allocatable(node: Object, resource: str) -> int:
    amount = str(node.get("status", {}).get("allocatable", {}).get(resource, "0"))
    return int(amount) if amount.isdigit() else 0


def _asked(pod: Object, resource: str) -> int:
    return int(pod.get("asked", {}).get(resource, 0))


def _closed(node: Object, cluster: Cluster, sku: Sku) -> bool:
    """True if new pods of ours would not be let in."""
    if node.get("spec", {}).get("unschedulable"):
        return True
    tolerated = {taint.key for taint in cluster.spec.taints} | {item.get("key") for item in sku.tolerations}
    for item in cluster.spec.pod_template.get("spec", {}).get("tolerations", []):
        tolerated.add(item.get("key"))
    taints = node.get("spec", {}).get("taints") or []
    return any(
        taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in tolerated and None not in tolerated for taint in taints
    )


def _at_most(nodes: list[NodeInventory], cluster: Cluster) -> list[NodeInventory]:
    """No more nodes of a SKU than the Cluster gives to Tuneyard."""
    room = {sku.name: sku.nodes for sku in cluster.spec.skus}
    kept = []
    for node in sorted(nodes, key=lambda node: (not node.ready, node.name)):
        if room[node.sku] > 0:
            room[node.sku] -= 1
            kept.append(node)
    return kept
