"""Counts the slots of a member's nodes, and the slots that pods of others hold. Pure."""

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
    """Machines of one SKU. `resource`: the extended resource of their GPUs; `kind`: None if the catalog lacks the SKU's name."""

    sku: Sku
    resource: str
    kind: Gpu | None


def inventory(cluster: Cluster, nodes: Iterable[Object], foreign_pods: Iterable[Object]) -> list[NodeInventory]:
    """The nodes of a member that belong to one of its SKUs. `free`: slots that foreign pods leave free; the hub's pods do not count."""
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
    """A message about usable nodes that belong to no SKU: their kinds by their labels, and how to use them. Empty if there are none."""
    listed, names = _listed(cluster), kinds()
    found: Counter[str] = Counter()
    for node in nodes:
        kind = names.of_node(_labels(node))
        if kind is not None and _allocatable(node, kind.resource) and _machines_of(node, listed, kind) is None:
            found[kind.sku] += 1
    if not found:
        return ""
    which = ", ".join(f"{count} x {sku}" for sku, count in sorted(found.items()))
    return f"nodes without a listed SKU are left out ({which} by their labels): add the SKU, or give one a nodeSelector"


def listed_twice(cluster: Cluster) -> list[str]:
    """Names of the first SKUs of a Cluster that mean the same kind of GPU; empty if all differ."""
    names = [(sku.name, canonical_sku(sku.name)) for sku in cluster.spec.skus]
    return next((same for _, kind in names if len(same := [own for own, name in names if name == kind]) > 1), [])


def _listed(cluster: Cluster) -> list[_Machines]:
    return [_Machines(sku, gpu_resource(sku), kinds().find(sku.name)) for sku in cluster.spec.skus]


def _machines_of(node: Object, listed: Iterable[_Machines], kind: Gpu | None) -> _Machines | None:
    """The machines that a node belongs to: the first with a matching nodeSelector, or with the kind in the node's labels; else the first
    whose GPU resource the node offers. SKUs without a nodeSelector do not match a node whose labels name another kind."""
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
    """The node's hostname label, which pods are bound by; nearly always the node's own name."""
    return str(node["metadata"].get("labels", {}).get("kubernetes.io/hostname", node["metadata"]["name"]))


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def kept_of_node(node: dict[str, Any]) -> dict[str, Any]:
    """The fields of a node that the hub needs, without its list of images (some tens of KB). Raises on a field of the wrong type."""
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
    """The mapping itself; an empty one for None. Raises TypeError on any other type."""
    if not isinstance(value, Mapping | None):
        raise TypeError(f"a mapping is expected, not a {type(value).__name__}")
    return value or {}


def kept_of_foreign_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """The fields of a foreign pod that the hub needs: its node, and the extended resources that it holds."""
    asked: Counter[str] = Counter()
    if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
        for container in pod["spec"].get("containers", []):
            for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in resource:
                    asked[resource] += counted(amount)
    metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "resourceVersion")}
    return {"metadata": metadata, "spec": {"nodeName": pod["spec"].get("nodeName")}, "asked": dict(asked)}


def _slots(node: Object, machines: _Machines) -> int:
    """Slots of a node: its allocatable resource, or `gpusPerNode` of the SKU `cpu`, for which nodes have no resource."""
    offered = _allocatable(node, machines.resource)
    return offered if offered or machines.sku.name != "cpu" else machines.sku.gpus_per_node


def _allocatable(node: Object, resource: str) -> int:
    return min(counted(node.get("status", {}).get("allocatable", {}).get(resource, "0")), MOST_GPUS_PER_NODE)


def counted(amount: object) -> int:
    """A number of devices in the format of Kubernetes (`8`, `1k`); 0 for any other text."""
    found = re.fullmatch(r"([0-9]{1,9})(k?)", str(amount), re.ASCII)
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def _closed(node: Object, cluster: Cluster, sku: Sku) -> bool:
    """True if the node accepts no new pods of attempts: it is cordoned, or has a taint that they do not tolerate."""
    if node.get("spec", {}).get("unschedulable"):
        return True
    of_pods = cluster.spec.pod_template.get("spec", {}).get("tolerations", [])
    tolerated = {taint.key for taint in cluster.spec.taints} | {item.get("key") for item in (*sku.tolerations, *of_pods)}
    if None in tolerated:
        return False
    taints = node.get("spec", {}).get("taints") or []
    return any(taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in tolerated for taint in taints)


def _at_most(nodes: list[NodeInventory], cluster: Cluster) -> list[NodeInventory]:
    """The nodes, cut to the number that the Cluster gives to Tuneyard per SKU; ready nodes first."""
    room = {sku.name: sku.nodes for sku in cluster.spec.skus}
    kept = []
    for node in sorted(nodes, key=lambda node: (not node.ready, node.name)):
        if room[node.sku] > 0:
            room[node.sku] -= 1
            kept.append(node)
    return kept
