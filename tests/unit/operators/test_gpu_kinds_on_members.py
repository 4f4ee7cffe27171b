"""From the labels of a member's nodes to the pods of an attempt, for kinds that are neither A100 nor H100, by whatever name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders.attempts import UID, attempt, job, train

from tuneyard.api import Cluster, JobStatus, Team
from tuneyard.catalog import gpu
from tuneyard.federation import Infeasible, Place, World, ask_of, attempts_of, member_of, schedule, team_of
from tuneyard_operators.hub.inventory import inventory, kept_of_node, listed_twice
from tuneyard_operators.hub.placement_status import placement_of
from tuneyard_operators.rendering import Defaults, attempt_name, rayjob

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def node(name: str, resource: str, gpus: int, **labels: str) -> dict[str, Any]:
    status = {"allocatable": {resource: str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return kept_of_node({"metadata": {"name": name, "labels": labels, "resourceVersion": "1"}, "spec": {}, "status": status})


NODES = [
    node("card-1", "nvidia.com/gpu", 4, **{"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090", "nvidia.com/gpu.memory": "24564"}),
    node("card-2", "nvidia.com/gpu", 4, **{"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090", "nvidia.com/gpu.memory": "24564"}),
    node("oam-1", "amd.com/gpu", 8, **{"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}),
]
LAB = Cluster.model_validate(
    {
        "metadata": {"name": "lab"},
        "spec": {
            "skus": [
                {"name": "rtx4090", "nodes": 4, "gpusPerNode": 4, "pricePerGpuHour": 0.4},
                {"name": "mi300x", "nodes": 1, "gpusPerNode": 8, "pricePerGpuHour": 2.0},
            ]
        },
    }
)


def decide(workers: int, *skus: str, **world: Any) -> Any:
    asked = job(tasks=[train("train", workers, sku=list(skus))])
    ask = ask_of(asked, NOW.timestamp(), "train", JobStatus())
    members = (member_of(LAB, inventory(LAB, NODES, [])),)
    (decision,) = schedule(World(members=members, asks=(ask,), **world), "tuneyard", NOW.timestamp())
    return asked, decision


def pod_of(workers: int, *skus: str) -> dict[str, Any]:
    """The worker pod of a job that names SKUs so."""
    asked, place = decide(workers, *skus)
    assert isinstance(place, Place), place
    placement = placement_of(place, LAB)
    own = attempt(1, "train", placement=placement, name=attempt_name("bot", UID, "train", 1))
    made = rayjob(asked, UID, own, LAB, "s3://models/bot", Defaults(image="registry/tuneyard:1"))
    (group,) = made["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    spec: dict[str, Any] = group["template"]["spec"]
    return spec


def hosts(spec: dict[str, Any]) -> list[str]:
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found: list[str] = term["matchExpressions"][0]["values"]
    return found


@pytest.mark.parametrize("name", ["rtx-4090-24gb", "4090", "NVIDIA-GeForce-RTX-4090"])
def test_a_job_for_4090s_runs_on_nodes_that_have_them(name: str) -> None:
    spec = pod_of(8, name)
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert hosts(spec) == ["card-1", "card-2"]


@pytest.mark.parametrize("name", ["mi300x-192gb", "MI300X", "AMD Instinct MI300X"])
def test_a_job_for_mi300x_asks_for_amds_resource(name: str) -> None:
    spec = pod_of(8, name)
    assert spec["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "8"}
    assert hosts(spec) == ["oam-1"]


def test_the_faster_kind_is_predicted_to_take_less() -> None:
    _, cards = decide(8, "4090")
    _, oam = decide(8, "mi300x")
    assert cards.seconds / oam.seconds == pytest.approx((1307.4 / 165.2 * 5300 / 1008) ** 0.5, rel=0.01)


def test_a_quota_is_of_the_kind_whatever_it_is_called() -> None:
    team = team_of(
        Team.model_validate({"metadata": {"name": "maps"}, "spec": {"quota": {"RTX4090": 2, "4090": 2}, "borrowingLimit": {"4090": 0}}}),
        NOW,
    )
    assert team.quota == {"rtx-4090-24gb": 4}
    _, within = decide(4, "rtx-4090-24gb", teams=(team,))
    _, above = decide(8, "rtx-4090-24gb", teams=(team,))
    assert isinstance(within, Place)
    assert isinstance(above, Infeasible)


def test_an_attempt_holds_gpus_of_the_kind_that_its_cluster_calls_otherwise() -> None:
    own = attempt(1, "train", placement=placement_of(decide(8, "4090")[1], LAB))
    (held,) = attempts_of("maps/bot", {}, "maps", JobStatus(attempts=[own]), NOW.timestamp(), 120.0)
    assert held.sku == gpu("4090").sku == "rtx-4090-24gb"


def test_figures_that_a_hub_was_given_reach_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = '{"gpus": [{"name": "mi300x", "vendor": "amd", "memoryGb": 192, "memoryBandwidthGbPerS": 4000, "peakTflops": {"fp32": 1}}]}'
    assert "TUNEYARD_GPUS" not in {each["name"] for each in pod_of(8, "mi300x")["containers"][0]["env"]}
    monkeypatch.setenv("TUNEYARD_GPUS", entry)
    (given,) = [each["value"] for each in pod_of(8, "mi300x")["containers"][0]["env"] if each["name"] == "TUNEYARD_GPUS"]
    monkeypatch.setenv("TUNEYARD_GPUS", given)
    assert gpu("mi300x").memory_bandwidth_gb_s == 4000


def test_a_cluster_that_lists_one_kind_twice_is_told_so() -> None:
    skus = [{"name": name, "nodes": 1, "gpusPerNode": 8} for name in ("h100", "a100", "H100-SXM")]
    assert listed_twice(Cluster.model_validate({"metadata": {"name": "lab"}, "spec": {"skus": skus}})) == ["h100", "H100-SXM"]
    assert listed_twice(LAB) == []
