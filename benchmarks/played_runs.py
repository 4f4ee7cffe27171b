"""Runs that are played: nothing computes, and every RayJob ends after the time of its class. For benchmarks of what comes before it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.kueue_cases import Kind, Shape, jobspec
from tests.clusters.hubs import JOBS, by_token
from tests.testcluster.clusters import Clusters

from tuneyard_operators.kube import JOBSPEC, RAYJOB, Cache, Connection, Key, Missing, from_kubeconfig_text
from tuneyard_operators.rendering import JOB

LIMIT_S = 600
Object = dict[str, Any]


@dataclass
class Theatre:
    """Creates the JobSpecs, plays the RayJobs that come of them, and keeps the times."""

    hub: Connection
    members: Sequence[Connection]
    shape: Shape
    created: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    """Job -> when its first RayJob was seen."""
    ended: set[str] = field(default_factory=set)
    held_s: float = 0.0
    """Slot-seconds from a RayJob's appearance to its removal."""
    preempted: int = 0
    on_stage: dict[str, tuple[str, float]] = field(default_factory=dict)
    """RayJob -> job and its appearance."""
    _plays: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> float:
        """Seconds from the first creation until the last RayJob had ended and was gone."""
        caches = [Cache(one, RAYJOB, namespace=JOBS, on_change=self._follower(one), keep=_kept) for one in self.members]
        watches = [asyncio.create_task(cache.run()) for cache in caches]
        await asyncio.gather(*(cache.synced.wait() for cache in caches))
        shape, began = self.shape, time.monotonic()
        queues = [(cohort, queue) for cohort in range(shape.cohorts) for queue in range(shape.queues)]
        await asyncio.gather(*(self._hand_in(kind, *queue) for queue in queues for kind in shape.kinds))
        while (len(self.ended) < shape.workloads or self.on_stage) and time.monotonic() - began < LIMIT_S:
            await asyncio.sleep(0.1)
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        if len(self.ended) < shape.workloads:
            raise TimeoutError(f"{len(self.ended)} of {shape.workloads} jobs had run after {LIMIT_S} s")
        return min(self.created.values())

    async def _hand_in(self, kind: Kind, cohort: int, queue: int) -> None:
        """As Kueue's generator does: wait, create, wait for the answer."""
        for number in range(kind.count):
            await asyncio.sleep(kind.interval_s)
            spec = jobspec(kind, cohort, queue, number)
            self.created[spec["metadata"]["name"]] = time.monotonic()
            await self.hub.create(JOBSPEC, "default", spec)

    def _follower(self, member: Connection) -> Any:
        def follow(key: Key, old: Object | None, new: Object | None) -> None:
            now = time.monotonic()
            if old is None and new is not None:
                job = new["metadata"]["labels"][JOB]
                self.started.setdefault(job, now)
                self.on_stage[key[1]] = (job, now)
                play = asyncio.create_task(self._play(member, key, job))
                self._plays.add(play)
                play.add_done_callback(self._plays.discard)
            elif new is None:
                job, appeared = self.on_stage.pop(key[1])
                self.held_s += self._kind(job).slots * (now - appeared)
                self.preempted += job not in self.ended

        return follow

    async def _play(self, member: Connection, key: Key, job: str) -> None:
        """A run of its class's time, ended as KubeRay tells of it. One that was removed meanwhile was preempted."""
        await asyncio.sleep(self._kind(job).seconds)
        if key[1] not in self.on_stage:
            return
        self.ended.add(job)
        status = {"status": {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}}
        try:
            await member.patch(RAYJOB, *key, status, subresource="status")
        except Missing:
            self.ended.discard(job)

    def _kind(self, job: str) -> Kind:
        return next(kind for kind in self.shape.kinds if job.startswith(kind.name))

    def waits_s(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for job, created in self.created.items():
            found.setdefault(self._kind(job).name, []).append(self.started[job] - created)
        return found


def _kept(item: Object) -> Object:
    return {"metadata": {key: item["metadata"].get(key) for key in ("name", "namespace", "labels", "resourceVersion")}}


async def play(clusters: Clusters, shape: Shape) -> tuple[Theatre, float]:
    """Until every JobSpec says Succeeded; the wall seconds since the first was handed in."""
    # A slow answer is waited for: it is part of what is measured.
    hub, *members = [await from_kubeconfig_text(by_token(each), qps=10_000, timeout_s=120) for each in clusters.all]
    theatre = Theatre(hub, members, shape)
    try:
        began = await theatre.run()
        while set(found := await _phases(hub)) != {"Succeeded"}:
            if time.monotonic() - began > LIMIT_S:
                raise TimeoutError(f"the jobs have run, and their phases are {found}")
            await asyncio.sleep(0.3)
        return theatre, time.monotonic() - began
    finally:
        for connection in (hub, *members):
            await connection.close()


async def _phases(hub: Connection) -> Counter[str]:
    return Counter((item.get("status") or {}).get("phase", "") for item in (await hub.list(JOBSPEC, "default"))["items"])
