"""Nodes and pods of a member as what a scheduler counts."""

from __future__ import annotations

from typing import Any

from tuneyard.api import Cluster
from tuneyard_operators.hub.inventory import inventory, kept_of_foreign_pod, kept_of_node, left_out


def cluster(*, nodes: int = 9, **spec: Any) -> Cluster:
    sku = {"name": "h100-80gb", "nodes": nodes, "gpusPerNode": 8, **spec.pop("sku", {})}
    return Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": [sku], **spec}})


def node(name: str = "n1", *, gpus: str = "8", ready: str = "True", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [{"type": "Ready", "status": ready}], "images": ["x"] * 50}
    return kept_of_node({"metadata": {"name": name, "labels": labels or {}, "resourceVersion": "1"}, "spec": spec, "status": status})


def pod(node_name: str, gpus: str, phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"nodeName": node_name, "containers": [container]}
    return kept_of_foreign_pod({"metadata": {"name": "p", "namespace": "d"}, "spec": spec, "status": {"phase": phase}})


def free(*nodes: dict[str, Any], pods: list[dict[str, Any]] | None = None, where: Cluster | None = None) -> dict[str, int]:
    return {each.name: each.free for each in inventory(where or cluster(), nodes, pods or [])}


def test_what_others_hold_is_not_free() -> None:
    assert free(node(), pods=[pod("n1", "3"), pod("n2", "8"), pod("n1", "4", "Succeeded")]) == {"n1": 5}


def test_nodes_that_let_nothing_in_have_nothing_free() -> None:
    gpu_taint = [{"key": "gpu", "effect": "NoSchedule"}]
    assert free(node(ready="Unknown")) == {"n1": 0}
    assert free(node(unschedulable=True)) == {"n1": 0}
    assert free(node(taints=gpu_taint)) == {"n1": 0}
    assert free(node(taints=gpu_taint), where=cluster(taints=[{"key": "gpu"}])) == {"n1": 8}
    assert free(node(taints=gpu_taint), where=cluster(sku={"tolerations": [{"key": "gpu", "operator": "Exists"}]})) == {"n1": 8}
    assert free(node(taints=gpu_taint), where=cluster(podTemplate={"spec": {"tolerations": [{"operator": "Exists"}]}})) == {"n1": 8}


def test_nodes_are_told_apart_by_their_selector() -> None:
    chosen = cluster(sku={"nodeSelector": {"pool": "ml"}})
    assert free(node("a", labels={"pool": "ml"}), node("b"), where=chosen) == {"a": 8}


def test_no_more_nodes_than_the_cluster_gives() -> None:
    assert free(node("a", ready="False"), node("b"), node("c"), where=cluster(nodes=2)) == {"b": 8, "c": 8}


def test_slots_on_cpu_are_declared_where_nodes_count_none() -> None:
    where = Cluster.model_validate({"metadata": {"name": "e"}, "spec": {"skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": 4}]}})
    assert free(node(gpus="0"), where=where) == {"n1": 4}


def test_pods_are_bound_by_host_name() -> None:
    assert free(node("n1", labels={"kubernetes.io/hostname": "host-1"})) == {"host-1": 8}


def test_what_is_kept_of_a_node_is_small() -> None:
    assert "images" not in node()["status"]


def kinds_of(where: Cluster, *nodes: dict[str, Any]) -> dict[str, str]:
    return {each.name: each.sku for each in inventory(where, nodes, [])}


def mixed(*skus: str) -> Cluster:
    found = [{"name": name, "nodes": 9, "gpusPerNode": 8} for name in skus]
    return Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": found}})


def product(name: str) -> dict[str, str]:
    return {"nvidia.com/gpu.product": name}


def instinct(name: str = "m1", gpus: str = "8", **labels: str) -> dict[str, Any]:
    status = {"allocatable": {"amd.com/gpu": gpus}, "conditions": [{"type": "Ready", "status": "True"}]}
    return kept_of_node({"metadata": {"name": name, "labels": labels, "resourceVersion": "1"}, "spec": {}, "status": status})


def test_labels_tell_kinds_apart_without_a_selector() -> None:
    nodes = (
        node("a", labels=product("NVIDIA-A100-SXM4-80GB")),
        node("b", labels=product("NVIDIA-GeForce-RTX-4090")),
        node("c", labels=product("NVIDIA-H100-80GB-HBM3")),
        node("d"),
    )
    where = mixed("h100", "rtx4090", "a100-80gb")
    assert kinds_of(where, *nodes) == {"a": "a100-80gb", "b": "rtx4090", "c": "h100", "d": "h100"}
    assert left_out(where, nodes) == ""


def test_a_node_of_another_kind_is_left_out_and_told() -> None:
    nodes = (node("a", labels=product("Tesla-T4")), node("b", labels=product("NVIDIA-H100-80GB-HBM3")))
    assert kinds_of(mixed("h100-80gb"), *nodes) == {"b": "h100-80gb"}
    assert left_out(mixed("h100-80gb"), nodes).startswith("nodes without a listed SKU are left out (1 x t4-16gb by their labels)")
    chosen = cluster(sku={"nodeSelector": product("Tesla-T4")})
    assert kinds_of(chosen, *nodes) == {"a": "h100-80gb"}  # a selector is taken at its word


def test_what_the_catalog_does_not_know_is_taken_at_the_clusters_word() -> None:
    nodes = (node("a", labels=product("NVIDIA-GeForce-RTX-9090")), node("b", labels=product("Tesla-T4")))
    assert kinds_of(mixed("big-cards", "t4"), *nodes) == {"a": "big-cards", "b": "t4"}


def test_gpus_of_amd_are_counted_by_their_own_resource() -> None:
    where = mixed("mi300x", "h100-80gb")
    nodes = (instinct("m1", **{"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}), instinct("m2"), node("n1"))
    assert kinds_of(where, *nodes) == {"m1": "mi300x", "m2": "mi300x", "n1": "h100-80gb"}
    holds = kept_of_foreign_pod(
        {
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "m1", "containers": [{"resources": {"limits": {"amd.com/gpu": "3"}}}]},
        }
    )
    assert {each.name: each.free for each in inventory(where, nodes, [holds])} == {"m1": 5, "m2": 8, "n1": 8}


def test_a_resource_that_the_cluster_names_is_counted() -> None:
    where = cluster(sku={"gpuResource": "amd.com/gpu"})
    assert kinds_of(where, instinct("m1"), node("n1")) == {"m1": "h100-80gb"}
