"""Jobs per second from a hub to its members: MultiKueue, Tuneyard, and the bare writes, one after the other on this machine.

`python benchmarks/multikueue.py [--jobs 1000] [--peer-jobs 300] [--parts kueue kueue-lifted tuneyard raw]`: writes
docs/benchmarks/multikueue.md
where all parts ran. One hub and three members, real API servers made anew for each system. MultiKueue gets RayJobs, Tuneyard JobSpecs; the
clock runs from the first creation until the last RayJob is on a member. Needs root, for a path that is compiled into Kueue.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.hub_throughput import Result, Stage, each, placed, raw  # noqa: E402 -- found by the line above
from tests.clusters.hubs import Operator, by_token, prepared, until  # noqa: E402
from tests.servers.installed import free_port  # noqa: E402
from tests.testcluster import Hub, Member, kuberay, kueue  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402
from tests.testcluster.progress import say, stage  # noqa: E402

from tuneyard_operators.kube import RAYJOB, Cache, Key, from_kubeconfig  # noqa: E402

NAMESPACE, QUEUE = "default", "jobs"
Object = dict[str, Any]


@dataclass(frozen=True)
class Arrivals:
    """How RayJobs came to the members. Seconds are since the first was created on the hub."""

    jobs: int
    created_s: float
    first_s: float
    last_s: float
    doubled: int
    hub_cpu_s: float
    members_cpu_s: float
    """Of the managers: one on the hub, one on each member."""

    @property
    def rate(self) -> float:
        return self.jobs / self.last_s

    @property
    def going_rate(self) -> float:
        """Between the first and the last."""
        return (self.jobs - 1) / (self.last_s - self.first_s)


# --- MultiKueue


def rayjob(number: int) -> Object:
    """Small: what a member gets from Tuneyard is some ten times larger."""
    container = {"name": "ray", "image": "ray:1", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    cluster = {
        "headGroupSpec": group,
        "workerGroupSpecs": [{"groupName": "workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, **group}],
    }
    spec = {
        "entrypoint": "true",
        "suspend": True,
        "managedBy": kueue.MANAGED_BY,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": cluster,
    }
    return {"metadata": {"name": f"job-{number}", "labels": {kueue.QUEUE_LABEL: QUEUE}}, "spec": spec}


async def arrive(clusters: Clusters, jobs: int, limit_s: float, cpu: Callable[[], tuple[float, float]]) -> Arrivals:
    """Create RayJobs on the hub, and watch the members until each has come to one of them."""
    hub = await from_kubeconfig(str(clusters.hub.kubeconfig), qps=10_000, timeout_s=120)
    members = [await from_kubeconfig(str(member.kubeconfig), qps=10_000, timeout_s=120) for member in clusters.members]
    came: dict[Key, float] = {}
    doubled: set[Key] = set()

    def seen(key: Key, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            if key in came:
                doubled.add(key)
            came.setdefault(key, time.monotonic())

    caches = [
        Cache(member, RAYJOB, namespace=NAMESPACE, on_change=seen, keep=lambda item: {"metadata": item["metadata"]}) for member in members
    ]
    watches = [asyncio.create_task(cache.run()) for cache in caches]
    await asyncio.gather(*(cache.synced.wait() for cache in caches))
    before, began = cpu(), time.monotonic()
    await each(range(jobs), lambda number: hub.create(RAYJOB, NAMESPACE, rayjob(number)))
    created_s, told = time.monotonic() - began, time.monotonic()
    while len(came) < jobs:
        await asyncio.sleep(0.25)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            say(f"{len(came)} of {jobs} have come after {told - began:.0f} s")
        if time.monotonic() - began > limit_s:
            raise TimeoutError(f"{len(came)} of {jobs} RayJobs had come to a member after {limit_s:g} s")
    after = cpu()
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    for connection in (hub, *members):
        await connection.close()
    first, last = min(came.values()) - began, max(came.values()) - began
    return Arrivals(jobs, created_s, first, last, len(doubled), after[0] - before[0], after[1] - before[1])


def through_multikueue(folder: Path, given: argparse.Namespace, program: str) -> Arrivals:
    """By a manager on each cluster, as MultiKueue needs them."""
    clusters = made(folder, given.members)
    managers = [kueue.Manager(cluster, program) for cluster in clusters.all]
    with kueue.metrics_certificate(folder / "metrics"):
        try:
            clusters.start()
            for cluster, manager in zip(clusters.all, managers, strict=True):
                cluster.apply(*kuberay.crds())
                manager.start()
            for member in clusters.members:
                kueue.queue_locally(member, QUEUE)
            kueue.queue_to(clusters.hub, QUEUE, clusters.members)

            def cpu() -> tuple[float, float]:
                return managers[0].cpu_s, sum(manager.cpu_s for manager in managers[1:])

            jobs = given.peer_jobs if program == "kueue" else given.jobs
            with stage(f"{program}: {jobs} RayJobs"):
                return asyncio.run(arrive(clusters, jobs, given.limit_s, cpu))
        except (TimeoutError, RuntimeError):
            for manager in managers:
                say(f"--- {manager.cluster.name}\n{manager.log[-1500:]}")
            raise
        finally:
            for manager in managers:
                manager.stop()
            clusters.close()


# --- Tuneyard


def through_tuneyard(folder: Path, given: argparse.Namespace) -> dict[str, Result]:
    """The hub's operator, and the writes of such jobs without one."""
    clusters, port = made(folder, given.members), free_port()
    options = ["--qps", "2000", "--member-qps", "1000", "--metrics-port", str(port)]
    operator = Operator(folder, folder / "kubeconfig", options=options)
    try:
        clusters.start()
        prepared(clusters, tokens=True)
        operator.kubeconfig.write_text(by_token(clusters.hub))
        operator.start()
        until(lambda: "leading as" in operator.log, "the operator leads")
        with stage(f"Tuneyard: {given.jobs} JobSpecs"):
            return asyncio.run(_measured(Stage(clusters, operator, port), given))
    finally:
        operator.processes.end_all()
        clusters.close()


async def _measured(on: Stage, given: argparse.Namespace) -> dict[str, Result]:
    await on.connect()
    found = {"tuneyard": await placed(on, given.jobs, 0)}
    if "raw" in given.parts:
        on.operator.stop()
        found["raw"] = await raw(on, given.jobs, 1)
    await on.close()
    return found


def made(folder: Path, members: int) -> Clusters:
    """Clusters of one shape for all: nodes that no kubelet serves. Kueue does not look at them."""
    nodes = (FakeNodes("gpu", 45),)
    own = tuple(Member(f"m{number}", folder / f"m{number}", fake=nodes, with_kuberay=False) for number in range(members))
    return Clusters(Hub("hub", folder / "hub"), own)


# --- the page


def page(given: argparse.Namespace, shipped: Arrivals, lifted: Arrivals, ours: Result, limit: Result) -> list[str]:
    rows = [
        ("jobs", f"{shipped.jobs:,}", f"{lifted.jobs:,}", f"{ours.jobs:,}", f"{limit.jobs:,}", ""),
        (
            "jobs/s, first creation to last RayJob",
            f"{shipped.rate:.2f}",
            f"{lifted.rate:.2f}",
            f"{ours.rate:.1f}",
            f"{limit.rate:.1f}",
            f"{ours.rate / lifted.rate:.1f}",
        ),
        (
            "jobs/s, first RayJob to last",
            f"{shipped.going_rate:.2f}",
            f"{lifted.going_rate:.2f}",
            "",
            "",
            f"{ours.rate / lifted.going_rate:.1f}",
        ),
        ("s until the last RayJob", f"{shipped.last_s:.1f}", f"{lifted.last_s:.1f}", f"{ours.took_s:.1f}", f"{limit.took_s:.1f}", ""),
        ("s for creating them", f"{shipped.created_s:.1f}", f"{lifted.created_s:.1f}", f"{ours.submitted_s:.1f}", "", ""),
        ("CPU ms per job, manager of the hub", *_per_job(shipped.hub_cpu_s, lifted.hub_cpu_s, shipped, lifted, ours)),
        (
            "CPU ms per job, managers of the members too",
            *_per_job(*(each.hub_cpu_s + each.members_cpu_s for each in (shipped, lifted)), shipped, lifted, ours),
        ),
        ("doubled", str(shipped.doubled), str(lifted.doubled), str(ours.doubled), "", ""),
    ]
    return [
        f"One hub and {given.members} members, each an API server with etcd and controllers; clients and managers share the cores.",
        "",
        f"| | MultiKueue {kueue.VERSION} as shipped | MultiKueue, rate lifted | Tuneyard | the writes alone | Tuneyard / lifted |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"Tuneyard's rate is {ours.rate / limit.rate:.2f} of that of the writes alone: JobSpec, two statuses, NetworkPolicy and RayJob.",
        "",
        "MultiKueue: a RayJob on the hub with `managedBy`, and a queue whose admission check is MultiKueue, goes to the first member that",
        "reserves quota for it. Quota never binds. `clientConnection` is set to 1,000 requests a second, the other settings are as Kueue",
        "ships them. Its clients to the members have no such setting in this version: client-go's default of 5 a second holds as shipped;",
        "lifted, it is built with one line changed, so that they send 1,000 a second too.",
        "",
        "Tuneyard: a JobSpec on the hub is placed on nodes of a member. It runs nothing of its own on members.",
    ]


def _per_job(shipped_s: float, lifted_s: float, shipped: Arrivals, lifted: Arrivals, ours: Result) -> tuple[str, ...]:
    theirs = [1000 * shipped_s / shipped.jobs, 1000 * lifted_s / lifted.jobs]
    own = ours.per_job_ms("operator")
    return f"{theirs[0]:.1f}", f"{theirs[1]:.1f}", f"{own:.1f}", "", f"{own / theirs[1]:.2f}"


def main() -> None:
    parts = ("kueue", "kueue-lifted", "tuneyard", "raw")
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--peer-jobs", type=int, help="RayJobs for MultiKueue as shipped, if not as many as JobSpecs")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=2400, help="how long to wait for MultiKueue")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="raw comes after tuneyard alone")
    given = parser.parse_args()
    given.peer_jobs = given.peer_jobs or given.jobs
    theirs: dict[str, Arrivals] = {}
    ours: dict[str, Result] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clusters are ended on the way out
    with tempfile.TemporaryDirectory(prefix="ty-", dir="/tmp") as folder:
        for program in ("kueue", "kueue-lifted"):
            if program in given.parts:
                theirs[program] = found = through_multikueue(Path(folder) / program, given, program)
                print(f"{program}: {found}; {found.rate:.2f} jobs/s, {found.going_rate:.2f} while going", flush=True)
        if "tuneyard" in given.parts:
            ours = through_tuneyard(Path(folder) / "tuneyard", given)
            for name, result in ours.items():
                print(f"{name}: {result}; {result.rate:.1f} jobs/s", flush=True)
    if len(theirs) == 2 and len(ours) == 2:
        from benchmarks.training_cases import write_page

        write_page("multikueue", "Jobs per second to members, beside MultiKueue", page(given, *theirs.values(), *ours.values()))


if __name__ == "__main__":
    main()
