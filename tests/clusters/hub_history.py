"""A hub with run history in this process: jobs whose attempts run, fail and end by chance, and what history must say of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from tests.clusters.hub_in_memory import JOBS, SETTINGS, Scene, until
from tests.servers.memory_api import MemoryApi

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.federation import held_hours
from tuneyard.tracking import tables
from tuneyard_operators.history import HistorySettings
from tuneyard_operators.history.rows import job_key
from tuneyard_operators.history.writer import HistoryWriter
from tuneyard_operators.hub import write_pace
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.usage import usage_of
from tuneyard_operators.kube import CLUSTER, NAMESPACE, NODE, POD, ApiError
from tuneyard_operators.metrics import families
from tuneyard_operators.rendering.names import ATTEMPT, JOB

PRICE = 2.5
SKU = {"name": "h100-80gb", "nodes": 50, "gpusPerNode": 8, "pricePerGpuHour": PRICE}
FINAL = [str(phase).lower() for phase in Phase if phase.final]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAILS = 0.15
"""Share of the attempts that fail."""
FAILURE = {"kind": "NodeLost", "message": "the node is gone"}


def with_history(url: str, **changes: Any) -> Settings:
    return replace(
        SETTINGS, history=HistorySettings(url=url, **{"paced_s": 0.2, "hold_s": 1e9, **changes}), backoff_s=0.05, longest_backoff_s=0.2
    )


async def api_with_nodes(nodes: int) -> MemoryApi:
    from tests.clusters.hub_in_memory import node

    api = MemoryApi()
    await api.create(NAMESPACE, None, {"metadata": {"name": "kube-system"}})
    await api.create(CLUSTER, None, {"metadata": {"name": "east"}, "spec": {"skus": [SKU]}})
    for number in range(nodes):
        await api.create(NODE, None, node(f"n{number}"))
    return api


def fails(job: str, number: int, share: float = FAILS) -> bool:
    """Whether an attempt fails: by chance, and the same in every run, in whatever order attempts end."""
    return random.Random(f"{job} {number}").random() < share


@dataclass
class Members:
    """The pods of all attempts: they begin, report steps, and end by chance, whether a hub lives or not."""

    api: MemoryApi
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    fails: float = FAILS
    steps: dict[str, int] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            for name in [key[1] for key in self.api.objects.get("RayJob", {})]:
                with suppress(ApiError, KeyError):
                    await self._act(name)
            for key in [key for key in self.api.objects.get("Pod", {}) if key[1].removesuffix("-head") in self.steps]:
                if (JOBS, key[1].removesuffix("-head")) not in self.api.objects.get("RayJob", {}):
                    with suppress(ApiError):
                        await self.api.delete(POD, *key)
            await asyncio.sleep(0.02)

    async def _act(self, name: str) -> None:
        scene = Scene(self.api, None)  # type: ignore[arg-type]  # none of its methods here asks the hub
        if name not in self.steps:
            self.steps[name] = 0
            await scene.begin(name)
        elif name not in self.over and self.chance.random() < 0.5:
            self.steps[name] += 1
            step = self.steps[name]
            progress = {"step": step, "of": 4, "loss": 3.0 / step, "tokensPerS": 1000.0, "mfu": 0.4}
            if step < 4:
                await scene.report(name, progress=progress, checkpointStep=step)
                return
            self.over.add(name)
            end: dict[str, Any] = {"phase": "Succeeded", "metrics": {"tokens_per_s": 1000.0, "rouge_l": 0.25, "engine": "vllm"}}
            labels = self.api.objects["RayJob"][JOBS, name]["metadata"]["labels"]
            if fails(labels[JOB], int(labels[ATTEMPT]), self.fails):
                end = {"phase": "Failed", "failure": FAILURE}
            await scene.report(name, progress=progress, **end)


def last_statuses(api: MemoryApi) -> Iterator[tuple[str, JobStatus]]:
    """Uid and last status of every JobSpec that ever was."""
    last: dict[str, JobStatus] = {}
    for _, kind, _, item in api._events:
        if kind == "JobSpec":
            status = JobStatus.model_validate(item.get("status") or {}, extra="ignore")
            last[item["metadata"]["uid"]] = status
    yield from last.items()


def is_over(api: MemoryApi) -> bool:
    return all((item.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Cancelled") for item in api.objects["JobSpec"].values())


@dataclass(frozen=True)
class Recorded:
    """What a database says."""

    jobs: dict[str, str]
    attempts: list[tuple[str, str, int, str]]
    gpu_hours: float
    cost: float
    usages: int


def recorded(url: str) -> Recorded:
    """Read with a connection of its own, past the code under test."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        jobs = {row.id: row.status for row in connection.execute(tables.jobs.select())}
        attempts = sorted((row.job_id, row.task, row.number, row.status) for row in connection.execute(tables.attempts.select()))
        usage = list(connection.execute(tables.usage.select()))
    engine.dispose()
    return Recorded(jobs, attempts, sum(row.gpu_hours for row in usage), sum(row.cost for row in usage), len(usage))


def expected(api: MemoryApi) -> Recorded:
    """The same, from the statuses that the API server held last."""
    jobs: dict[str, str] = {}
    attempts: list[tuple[str, str, int, str]] = []
    ended: list[Attempt] = []
    for uid, status in last_statuses(api):
        jobs[job_key(uid)] = status.phase.lower()
        attempts += [(job_key(uid), attempt.task, attempt.number, attempt.phase.lower()) for attempt in status.attempts]
        ended += [attempt for attempt in status.attempts if attempt.ended_at]
    gpu_hours = sum(_gpu_hours(attempt) for attempt in ended)
    assert usage_of(ended, datetime.now(UTC))[0] == round(gpu_hours, 4)
    return Recorded(jobs, sorted(attempts), gpu_hours, PRICE * gpu_hours, len(ended))


def _gpu_hours(attempt: Attempt) -> float:
    assert attempt.placement is not None
    return held_hours(attempt, _EPOCH, datetime.now(UTC)) * attempt.placement.gpus


def write_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the pauses between the hub's writes out."""
    monkeypatch.setattr(write_pace, "_BETWEEN_WRITES_S", 0.05)
    monkeypatch.setattr(write_pace, "_AFTER_A_PLACEMENT_S", 0.05)


async def one_job(stage: Scene, name: str, **spec: Any) -> None:
    await stage.submit(name, **spec)
    await until(lambda: stage.status(name).get("phase") == "Succeeded", f"{name} ends")


def history_of(stage: Scene) -> HistoryWriter:
    assert stage.hub._history is not None
    return stage.hub._history


def held(stage: Scene) -> bool:
    return told(stage, families.HISTORY_HELD) == 1


def told(stage: Scene, family: families.Family) -> float:
    """What the writer of history tells Prometheus."""
    return {found: value for found, _, value in history_of(stage).series()}[family]


def failures(stage: Scene, reason: str) -> float:
    return float(stage.hub.metrics.history.failures.labels(reason)._value.get())


def lags(stage: Scene) -> int:
    return len(history_of(stage)._pending)


async def longest_pause_s() -> float:
    """The longest time in two seconds for which the event loop did nothing else."""
    longest, end = 0.0, time.monotonic() + 2
    while (before := time.monotonic()) < end:
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - before - 0.01)
    return longest
