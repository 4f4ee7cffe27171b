"""The shape of Kueue's own scheduler benchmark, as values: teams in cohorts with quota, and the workloads that each of them hands in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from tests.testcluster import kueue

PRIORITIES = {"small": "low", "medium": "normal", "large": "high"}
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One class of workload, as a queue gets it: `count` of them, one every `interval_s`, each for `seconds` on `slots`."""

    name: str
    count: int
    interval_s: float
    seconds: float
    slots: int


@dataclass(frozen=True)
class Shape:
    cohorts: int
    queues: int
    """In each cohort."""
    quota: int
    """Of each queue."""
    borrowing: int
    kinds: tuple[Kind, ...]

    @property
    def capacity(self) -> int:
        return self.cohorts * self.queues * self.quota

    @property
    def workloads(self) -> int:
        return self.cohorts * self.queues * sum(kind.count for kind in self.kinds)

    @property
    def bound_s(self) -> float:
        """With all quota in use from the first to the last moment."""
        return sum(kind.count * kind.seconds * kind.slots for kind in self.kinds) / self.quota

    @property
    def handed_in_s(self) -> float:
        return max(kind.count * kind.interval_s for kind in self.kinds)


def generator_config(divide: int) -> list[Object]:
    """Kueue's, with so many times fewer workloads."""
    file = kueue.module_folder() / "test/performance/scheduler/default_generator_config.yaml"
    config: list[Object] = yaml.safe_load(file.read_text())
    for cohort in config:
        for queues in cohort["queuesSets"]:
            for workloads in queues["workloadsSets"]:
                workloads["count"] //= divide
    return config


def shape_of(config: list[Object]) -> Shape:
    (cohort,) = config
    (queues,) = cohort["queuesSets"]
    kinds = []
    for workloads in queues["workloadsSets"]:
        (one,) = workloads["workloads"]
        interval_s, seconds = workloads["creationIntervalMs"] / 1000, one["runtimeMs"] / 1000
        kinds.append(Kind(one["className"], workloads["count"], interval_s, seconds, int(one["request"])))
    return Shape(cohort["count"], queues["count"], int(queues["nominalQuota"]), int(queues["borrowingLimit"]), tuple(kinds))


def team_name(cohort: int, queue: int) -> str:
    return f"cohort-{cohort}-cq-{queue}"


def team(shape: Shape, cohort: int, queue: int) -> Object:
    spec = {"quota": {"cpu": shape.quota}, "borrowingLimit": {"cpu": shape.borrowing}, "cohort": f"cohort-{cohort}"}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": team_name(cohort, queue)}, "spec": spec}


def jobspec(kind: Kind, cohort: int, queue: int, number: int) -> Object:
    train = {
        "model": {"name": "meta-llama/Llama-2-7b-hf"},
        "data": {"source": "s3://b/chats.jsonl", "format": "chat"},
        "batch": {"global": kind.slots},
        "steps": 10,
    }
    tasks = [{"name": "train", "train": train, "resources": {"workers": kind.slots, "sku": ["cpu"]}}]
    spec = {"team": team_name(cohort, queue), "priority": PRIORITIES[kind.name], "tasks": tasks}
    return {"metadata": {"name": f"{kind.name}-{cohort}-{queue}-{number}", "namespace": "default"}, "spec": spec}
