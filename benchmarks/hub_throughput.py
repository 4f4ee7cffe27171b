"""1,000 JobSpecs at once: how fast does the hub bring each to one RayJob, beside what the API servers themselves can do?

`python benchmarks/hub_throughput.py [--jobs 1000] [--members 3] [--kills 10]`: writes docs/benchmarks/hub_throughput.md. Real API
servers on this machine, nodes of 8 GPUs that exist in them alone, no KubeRay. Twice: left alone, and with the operator killed now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.training_cases import write_page  # noqa: E402 -- found by the line above
from tests.hubs import JOBS, Operator, jobspec, phases, prepared, rayjobs, submit_all, until  # noqa: E402
from tests.testcluster import Hub, Member  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402

from tuneyard_operators.kube import JOBSPEC, RAYJOB, from_kubeconfig  # noqa: E402

AT_ONCE = 64


async def raw_rate(clusters: Clusters, jobs: int) -> float:
    """Seconds for the writes that jobs need, as fast as the servers take them: of each a finalizer, a status, a RayJob, a status."""
    hub = await from_kubeconfig(str(clusters.hub.kubeconfig), qps=10_000, at_once=AT_ONCE)
    members = [await from_kubeconfig(str(member.kubeconfig), qps=10_000, at_once=AT_ONCE) for member in clusters.members]
    template = rayjobs(clusters.members[0])[0]
    status = {"status": {"phase": "Queued", "message": "x" * 500, "attempts": []}}

    async def one(number: int) -> None:
        name, member = f"raw-{number}", members[number % len(members)]
        await hub.patch(JOBSPEC, "default", name, {"metadata": {"finalizers": ["tuneyard.dev/members"]}})
        await hub.patch(JOBSPEC, "default", name, status, subresource="status")
        await member.create(RAYJOB, JOBS, {"metadata": {"name": name, "labels": {"raw": "yes"}}, "spec": template["spec"]})
        await hub.patch(JOBSPEC, "default", name, {"status": {"phase": "Starting"}}, subresource="status")

    began = time.monotonic()
    gate = asyncio.Semaphore(AT_ONCE)

    async def gated(number: int) -> None:
        async with gate:
            await one(number)

    await asyncio.gather(*(gated(number) for number in range(jobs)))
    took = time.monotonic() - began
    for connection in (hub, *members):
        await connection.close()
    return took


def run(clusters: Clusters, operator: Operator, jobs: int, kills: int) -> dict[str, Any]:
    """Submit, wait until every job has a RayJob, and count."""
    names = [f"job-{kills}-{number}" for number in range(jobs)]
    peak, cpu = 0.0, operator.cpu_s
    began = time.monotonic()
    submit_all(clusters.hub, [jobspec(name, workers=1) for name in names])
    submitted = time.monotonic() - began
    chance, killed = random.Random(3), 0
    while True:
        owners = Counter(item["metadata"]["labels"].get("tuneyard.dev/job") for member in clusters.members for item in rayjobs(member))
        peak = max(peak, operator.memory_mb)
        if killed < kills:
            time.sleep(chance.uniform(0.1, 1.5))
            operator.kill()
            operator.start()
            killed += 1
        elif set(names) <= set(owners):
            break
        time.sleep(0.5)
    took = time.monotonic() - began
    until(lambda: set(phases(clusters.hub).values()) == {"Starting"}, "every status says so")
    doubled = sum(count > 1 for name, count in owners.items() if name in set(names))
    peak = max(peak, operator.memory_mb)
    return {"took": took, "submitted": submitted, "peak": peak, "doubled": doubled, "cpu": operator.cpu_s - cpu, "lost": 0}


def clear(clusters: Clusters) -> None:
    clusters.hub.kubectl("delete", "jobspecs", "--all", "--wait=false")
    until(lambda: not phases(clusters.hub), "all jobs are gone", 300)
    until(lambda: not any(rayjobs(member) for member in clusters.members), "all RayJobs are gone", 300)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ty-", dir="/tmp") as folder:
        nodes = (FakeNodes("gpu", 45),)
        members = tuple(Member(f"m{n}", Path(folder) / f"m{n}", fake=nodes, with_kuberay=False) for n in range(given.members))
        clusters = Clusters(Hub("hub", Path(folder) / "hub"), members)
        operator = Operator(Path(folder), clusters.hub.kubeconfig, options=["--qps", "2000", "--member-qps", "1000"])
        try:
            clusters.start()
            prepared(clusters)
            operator.start()
            until(lambda: "leading as" in operator.log, "the operator leads")
            alone = run(clusters, operator, given.jobs, 0)
            print(alone, flush=True)
            submit_all(clusters.hub, [jobspec(f"raw-{number}", suspend=True) for number in range(given.jobs)])
            operator.stop()
            raw = asyncio.run(raw_rate(clusters, given.jobs))
            print(raw, flush=True)
            for member in members:
                member.kubectl("delete", "rayjobs", "-n", JOBS, "-l", "raw=yes", "--wait=false")
            operator.start()
            clear(clusters)
            killed = run(clusters, operator, given.jobs, given.kills)
            print(killed, flush=True)
            clear(clusters)
        finally:
            operator.processes.end_all()
            clusters.close()
    write_page("hub_throughput", "1,000 JobSpecs at once", page(given, alone, raw, killed))


def page(given: argparse.Namespace, alone: dict[str, Any], raw: float, killed: dict[str, Any]) -> list[str]:
    jobs = given.jobs
    rate, limit = jobs / alone["took"], jobs / raw
    where = f"one hub with {given.members} members of 45 machines x 8 GPUs"
    return [
        f"{jobs:,} JobSpecs of one train task each, submitted by 16 threads to {where}.",
        "",
        "| | jobs/s from the first submission to the last RayJob | doubled | lost | operator's memory, MB | its CPU s per job |",
        "|---|---|---|---|---|---|",
        f"| left alone | {rate:.1f} | {alone['doubled']} | 0 | {alone['peak']:.0f} | {alone['cpu'] / jobs:.4f} |",
        f"| killed {given.kills} times | {jobs / killed['took']:.1f} | {killed['doubled']} | 0 | {killed['peak']:.0f} | |",
        f"| the same four writes per job, nothing else | {limit:.1f} | | | | |",
        "",
        f"The hub reaches {rate / limit:.2f} of what the API servers take. Submitting alone took {alone['submitted']:.1f} s of the "
        f"{alone['took']:.1f} s: client, API servers, etcd and operator share the cores.",
    ]


if __name__ == "__main__":
    main()
