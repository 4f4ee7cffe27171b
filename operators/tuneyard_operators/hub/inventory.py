"""Nodes and pods of a member as what a scheduler counts: slots per node, and which of them others hold. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import Cluster, NodeInventory, Sku
from tuneyard.api.limits import MOST_GPUS_PER_NODE
from tuneyard.catalog import Gpu, canonical_sku, gpu_resource, kinds

Object = Mapping[str, Any]


@dataclass(frozen=True)
class _Machines:
    """Machines of one SKU. `resource`: what counts their GPUs; `kind`: None where the catalog lacks the SKU's name."""

    sku: Sku
    resource: str
    kind: Gpu | None


def inventory(cluster: Cluster, nodes: Iterable[Object], foreign_pods: Iterable[Object]) -> list[NodeInventory]:
    """The nodes of a member that belong to one of its SKUs. `free`: what pods of others leave; attempts of the hub are not counted here."""
    listed, names = _listed(cluster), kinds()
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in foreign_pods:
        held[str(pod["spec"].get("nodeName"))].update(pod.get("asked", {}))
    found = []
    for node in nodes:
        machines = _machines_of(node, listed, names.of_node(_labels(node)))
        if machines is None:
            continue
        sku, slots = machines.sku, _slots(node, machines)
        taken = held[str(node["metadata"]["name"])][machines.resource]
        ready = is_ready(node) and not _closed(node, cluster, sku)
        found.append(NodeInventory(name=hostname(node), sku=sku.name, gpus=slots, free=max(0, slots - taken) if ready else 0, ready=ready))
    return _at_most(found, cluster)


def left_out(cluster: Cluster, nodes: Iterable[Object]) -> str:
    """What nodes that belong to no SKU are by their labels, and how to use them; empty where there are none."""
    listed, names = _listed(cluster), kinds()
    found: Counter[str] = Counter()
    for node in nodes:
        kind = names.of_node(_labels(node))
        if kind is not None and _allocatable(node, kind.resource) and _machines_of(node, listed, kind) is None:
            found[kind.sku] += 1
    if not found:
        return ""
    which = ", ".join(f"{count} x {sku}" for sku, count in sorted(found.items()))
    return f"nodes of kinds that it does not list are left out ({which} by their labels): add the SKU, or give one a nodeSelector"


def listed_twice(cluster: Cluster) -> list[str]:
    """Names of SKUs of a Cluster that mean one kind; empty where there are none."""
    names = [(sku.name, canonical_sku(sku.name)) for sku in cluster.spec.skus]
    return next((same for _, kind in names if len(same := [own for own, name in names if name == kind]) > 1), [])


def _listed(cluster: Cluster) -> list[_Machines]:
    return [_Machines(sku, gpu_resource(sku), kinds().find(sku.name)) for sku in cluster.spec.skus]


def _machines_of(node: Object, listed: Iterable[_Machines], kind: Gpu | None) -> _Machines | None:
    """What a node belongs to: the first whose nodeSelector matches, or whose kind is that of the node's labels; else the first whose GPUs
    it offers. A node whose labels name another kind belongs to none without a nodeSelector."""
    fitting = [machines for machines in listed if _belongs(node, machines, kind)]
    chosen = (each for each in fitting if each.sku.node_selector or (kind is not None and each.kind == kind))
    return next(chosen, fitting[0] if fitting else None)


def _belongs(node: Object, machines: _Machines, kind: Gpu | None) -> bool:
    if selector := machines.sku.node_selector:
        labels = _labels(node)
        return all(labels.get(key) == value for key, value in selector.items())
    if machines.sku.name == "cpu":
        return True
    return _allocatable(node, machines.resource) > 0 and (kind is None or machines.kind is None or machines.kind == kind)


def _labels(node: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels", {})
    return found


def hostname(node: Object) -> str:
    """What pods are bound by; nearly always the node's own name."""
    return str(node["metadata"].get("labels", {}).get("kubernetes.io/hostname", node["metadata"]["name"]))


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def kept_of_node(node: dict[str, Any]) -> dict[str, Any]:
    """What the hub needs of a node: without the list of images, some tens of KB. Raises where it has not the shape of a node."""
    status, metadata, asked = (_mapping(node.get(part)) for part in ("status", "metadata", "spec"))
    conditions = [_mapping(each) for each in status.get("conditions") or []]
    ready = [{"type": "Ready", "status": each.get("status")} for each in conditions if each.get("type") == "Ready"]
    taints = [{"key": _mapping(each).get("key"), "effect": each.get("effect")} for each in asked.get("taints") or []]
    kept = {key: metadata[key] for key in ("name", "resourceVersion") if metadata.get(key)}
    return {
        "metadata": {**kept, "labels": {str(key): str(value)[:253] for key, value in _mapping(metadata.get("labels")).items()}},
        "spec": {"unschedulable": bool(asked.get("unschedulable")), "taints": [{**each, "key": str(each["key"] or "")} for each in taints]},
        "status": {"conditions": ready, "allocatable": dict(_mapping(status.get("allocatable")))},
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, or an empty one for what is absent. Raises TypeError on anything else."""
    if not isinstance(value, Mapping | None):
        raise TypeError(f"a mapping is expected, not a {type(value).__name__}")
    return value or {}


def kept_of_foreign_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """What the hub needs of a pod that is not its own: where it is, and which extended resources it holds."""
    asked: Counter[str] = Counter()
    if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
        for container in pod["spec"].get("containers", []):
            for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in resource:
                    asked[resource] += counted(amount)
    metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "resourceVersion")}
    return {"metadata": metadata, "spec": {"nodeName": pod["spec"].get("nodeName")}, "asked": dict(asked)}


def _slots(node: Object, machines: _Machines) -> int:
    """Slots by what the node offers; on cpu, where nodes count none, by what the Cluster says."""
    offered = _allocatable(node, machines.resource)
    return offered if offered or machines.sku.name != "cpu" else machines.sku.gpus_per_node


def _allocatable(node: Object, resource: str) -> int:
    return min(counted(node.get("status", {}).get("allocatable", {}).get(resource, "0")), MOST_GPUS_PER_NODE)


def counted(amount: object) -> int:
    """A number of devices, as Kubernetes writes it (`8`, `1k`); 0 for what is none."""
    found = re.fullmatch(r"([0-9]{1,9})(k?)", str(amount), re.ASCII)
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def _closed(node: Object, cluster: Cluster, sku: Sku) -> bool:
    """True if new pods of ours would not be let in."""
    if node.get("spec", {}).get("unschedulable"):
        return True
    of_pods = cluster.spec.pod_template.get("spec", {}).get("tolerations", [])
    tolerated = {taint.key for taint in cluster.spec.taints} | {item.get("key") for item in (*sku.tolerations, *of_pods)}
    if None in tolerated:
        return False
    taints = node.get("spec", {}).get("taints") or []
    return any(taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in tolerated for taint in taints)


def _at_most(nodes: list[NodeInventory], cluster: Cluster) -> list[NodeInventory]:
    """No more nodes of a SKU than the Cluster gives to Tuneyard."""
    room = {sku.name: sku.nodes for sku in cluster.spec.skus}
    kept = []
    for node in sorted(nodes, key=lambda node: (not node.ready, node.name)):
        if room[node.sku] > 0:
            room[node.sku] -= 1
            kept.append(node)
    return kept
