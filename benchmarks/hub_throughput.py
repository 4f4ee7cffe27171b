"""1,000 JobSpecs at once: how fast does the hub bring each to one RayJob, beside what the API servers themselves can do?

`python benchmarks/hub_throughput.py [--jobs 1000] [--members 3] [--kills 10] [--lives 0] [--profile FILE]`: writes
docs/benchmarks/hub_throughput.md. Real API servers on this machine, nodes of 8 GPUs that exist in them alone, no KubeRay. The clock runs
from the first JobSpec's creation to the last RayJob; the raw rate is that of the same writes, creation included, by the same client
without a hub. `--lives`: so many JobSpecs also run and succeed, as reports from outside say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bare_writes import Bodies  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402
from tests.clusters.hubs import JOBS, RAYJOBS, Operator, by_token, jobspec, phases, prepared, rayjobs, until  # noqa: E402
from tests.servers.installed import free_port  # noqa: E402
from tests.testcluster import Hub, Member  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402

from tuneyard_operators.kube import ATTEMPT_REPORT, JOBSPEC, RAYJOB, Connection, Missing, from_kubeconfig_text  # noqa: E402

AT_ONCE = 32
_LOOK_EVERY_S = 0.25
_WRITES = ("POST", "PATCH", "PUT", "DELETE")
Object = dict[str, Any]


@dataclass
class Stage:
    """Clusters, an operator over them, and this process's own connections."""

    clusters: Clusters
    operator: Operator
    port: int
    hub: Connection = field(init=False)
    members: dict[str, Connection] = field(init=False)

    async def connect(self) -> None:
        self.hub, *members = [await from_kubeconfig_text(by_token(each), qps=10_000, at_once=AT_ONCE) for each in self.clusters.all]
        self.members = {member.name: connection for member, connection in zip(self.clusters.members, members, strict=True)}

    async def close(self) -> None:
        for connection in (self.hub, *self.members.values()):
            await connection.close()

    async def rayjobs(self) -> int:
        """How many there are, at the cost of one object per member."""
        return sum([await _count(connection, RAYJOBS) for connection in self.members.values()])

    async def all_are(self, phase: str) -> None:
        while {(item.get("status") or {}).get("phase") for item in (await self.hub.list(JOBSPEC))["items"]} != {phase}:
            await asyncio.sleep(2)

    def cpu(self) -> Counter[str]:
        """CPU seconds so far, by process."""
        used = Counter({"this client": time.process_time(), "operator": self.operator.cpu_s})
        for cluster in self.clusters.all:
            for name, pid in cluster.components().items():
                if pid is not None:
                    times = psutil.Process(pid).cpu_times()
                    used[{"kube-apiserver": "API servers", "etcd": "etcd"}.get(name, "controllers")] += times.user + times.system
        return used

    def requests(self) -> Counter[str]:
        """The operator's requests so far, by where they went, their verb and what they were about, from its own metrics."""
        found: Counter[str] = Counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("tuneyard_api_requests_total{"):
                    labels = dict(part.split("=") for part in line[line.index("{") + 1 : line.index("}")].replace('"', "").split(","))
                    where = "hub" if labels["cluster"] == "hub" else "members"
                    found[f"{where} {labels['verb']} {labels['resource']}"] += int(float(line.rpartition(" ")[2]))
                elif line.startswith("tuneyard_reconcile_total{"):
                    found["its looks"] += int(float(line.rpartition(" ")[2]))
        return found


@dataclass(frozen=True)
class Result:
    jobs: int
    took_s: float
    submitted_s: float
    cpu: Counter[str]
    requests: Counter[str]
    peak_mb: float
    doubled: int
    lost: int

    @property
    def rate(self) -> float:
        return self.jobs / self.took_s

    def per_job_ms(self, who: str) -> float:
        return 1000 * self.cpu[who] / self.jobs

    @property
    def operator_writes(self) -> float:
        """Of one job, on hub and member; Events are POSTs to the hub and count."""
        return sum(count for name, count in self.requests.items() if name.split()[1] in _WRITES) / self.jobs

    @property
    def cores(self) -> float:
        """In use in the mean."""
        return sum(self.cpu.values()) / self.took_s

    @property
    def ms_per_job(self) -> float:
        """CPU of all but this client."""
        return sum(self.per_job_ms(who) for who in self.cpu if who != "this client")


async def _count(connection: Connection, path: str) -> int:
    page = json.loads(await connection.raw(f"{path}?limit=1"))
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


async def each(items: Iterable[Any], one: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
    """`one` for every item, AT_ONCE at a time."""
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:
            await one(item)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


async def submit(stage: Stage, specs: list[Object]) -> float:
    began = time.monotonic()
    await each(specs, lambda spec: stage.hub.create(JOBSPEC, "default", {"metadata": spec["metadata"], "spec": spec["spec"]}))
    return time.monotonic() - began


async def placed(stage: Stage, jobs: int, kills: int) -> Result:
    """Submit, wait until every job has a RayJob, and count."""
    names = {f"job-{kills}-{number}" for number in range(jobs)}
    cpu, requests, began = stage.cpu(), stage.requests(), time.monotonic()
    submitting = asyncio.create_task(submit(stage, [jobspec(name, workers=1) for name in sorted(names)]))
    chance, killed, peak = random.Random(3), 0, 0.0
    while killed < kills or await stage.rayjobs() < jobs:
        await asyncio.sleep(chance.uniform(0.1, 1.5) if killed < kills else _LOOK_EVERY_S)
        peak = max(peak, stage.operator.memory_mb)
        if killed < kills:
            stage.operator.kill()
            stage.operator.start()
            killed += 1
    took = time.monotonic() - began
    used = stage.cpu() - cpu
    await stage.all_are("Starting")
    asked = stage.requests()
    owners = Counter(item["metadata"]["labels"].get("tuneyard.dev/job") for member in stage.clusters.members for item in rayjobs(member))
    return Result(
        jobs=jobs,
        took_s=took,
        submitted_s=await submitting,
        cpu=used,
        requests=asked if kills else asked - requests,
        peak_mb=max(peak, stage.operator.memory_mb),
        doubled=sum(count > 1 for name, count in owners.items() if name in names),
        lost=len(names - set(owners)),
    )


async def raw(stage: Stage, jobs: int, statuses: int) -> Result:
    """The writes that jobs need, as fast as the servers take them: JobSpec, a status, NetworkPolicy, RayJob, further `statuses`.

    Bodies are the ones the hub has just written.
    """
    bodies = Bodies.of(stage.clusters, "job-0-0")
    members = list(stage.members.values())

    async def one(number: int) -> None:
        name, member = f"raw-{statuses}-{number}", members[number % len(members)]
        await bodies.begin(stage.hub, member, name, jobspec(name, workers=1))
        for further in range(statuses):
            await bodies.tell(stage.hub, name, str(further))

    cpu, began = stage.cpu(), time.monotonic()
    await each(range(jobs), one)
    took = time.monotonic() - began
    used = stage.cpu() - cpu
    stage.clusters.hub.kubectl("delete", "jobspecs", "--all", "--wait=false")
    await each(range(jobs), lambda number: _let_go(stage, f"raw-{statuses}-{number}"))
    for cluster in stage.clusters.members:
        cluster.kubectl("delete", "rayjobs,networkpolicies", "-n", JOBS, "-l", "raw=yes", "--wait=false")
    return Result(jobs, took, 0.0, used, Counter(), 0.0, 0, 0)


async def _let_go(stage: Stage, name: str) -> None:
    with contextlib.suppress(Missing):
        await stage.hub.patch(JOBSPEC, "default", name, {"metadata": {"finalizers": None}})


async def lives(stage: Stage, jobs: int) -> Result:
    """JobSpecs that are created, start, run for 0.2 to 1 s and succeed, until nothing is left of them on a member.

    A client outside does what an attempt does: an AttemptReport, its status Running, its status Succeeded.
    """
    chance = random.Random(5)
    began_of: set[str] = set()
    work: set[asyncio.Task[None]] = set()

    async def live(member: Connection, rayjob: Object) -> None:
        metadata = {"name": rayjob["metadata"]["name"], "labels": rayjob["metadata"]["labels"]}
        await member.create(ATTEMPT_REPORT, JOBS, {"metadata": metadata})
        for phase in ("Running", "Succeeded"):
            await member.patch(ATTEMPT_REPORT, JOBS, metadata["name"], {"status": {"phase": phase}}, subresource="status")
            await asyncio.sleep(chance.uniform(0.2, 1.0) if phase == "Running" else 0)

    async def follow(member: Connection) -> None:
        since = (await member.list(RAYJOB, JOBS))["metadata"]["resourceVersion"]
        async for kind, item in member.watch(RAYJOB, JOBS, since=since):
            if kind == "ADDED" and item["metadata"]["name"] not in began_of:
                began_of.add(item["metadata"]["name"])
                task = asyncio.create_task(live(member, item))
                work.add(task)
                task.add_done_callback(work.discard)

    followers = [asyncio.create_task(follow(member)) for member in stage.members.values()]
    await asyncio.sleep(1)
    cpu, requests, began = stage.cpu(), stage.requests(), time.monotonic()
    submitted = await submit(stage, [jobspec(f"life-{number}", workers=1) for number in range(jobs)])
    while len(began_of) < jobs or work or await stage.rayjobs():
        await asyncio.sleep(_LOOK_EVERY_S)
    took = time.monotonic() - began
    used, asked, peak = stage.cpu() - cpu, stage.requests() - requests, stage.operator.memory_mb
    await stage.all_are("Succeeded")
    for task in followers:
        task.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    return Result(jobs, took, submitted, used, asked, peak, len(began_of) - jobs, 0)


def clear(clusters: Clusters) -> None:
    clusters.hub.kubectl("delete", "jobspecs", "--all", "--wait=false")
    until(lambda: not phases(clusters.hub), "all jobs are gone", 600)
    until(lambda: not any(rayjobs(member) for member in clusters.members), "all RayJobs are gone", 600)


async def measure(stage: Stage, given: argparse.Namespace) -> dict[str, Result]:
    """Every stage of the benchmark, over clusters and an operator that run."""
    await stage.connect()
    found: dict[str, Result] = {}

    def note(name: str, result: Result) -> None:
        found[name] = result
        print(name, *row(result), sep=" | ", flush=True)
        print(dict(result.requests), flush=True)

    profiler = profile(stage.operator, given.profile) if given.profile else None
    note("left alone", await placed(stage, given.jobs, 0))
    if profiler is not None:
        profiler.send_signal(signal.SIGINT)
        profiler.wait()
    if given.raw:
        stage.operator.stop()
        for statuses in (0, 1):
            note(f"raw, {3 + statuses} writes and the creation", await raw(stage, given.jobs, statuses))
        stage.operator.start()
    clear(stage.clusters)
    if given.lives:
        note("whole lives", await lives(stage, given.lives))
        clear(stage.clusters)
    if given.kills:
        note(f"killed {given.kills} times", await placed(stage, given.jobs, given.kills))
        clear(stage.clusters)
    await stage.close()
    return found


def profile(operator: Operator, file: Path) -> subprocess.Popen[bytes]:
    """A sampling profiler on the operator; `file`: folded stacks."""
    pid = operator.processes.pid(operator.name)
    return subprocess.Popen(["py-spy", "record", "--format", "raw", "--rate", "200", "--output", str(file), "--pid", str(pid)])


def main() -> None:
    parser = argparse.ArgumentParser(description="1,000 JobSpecs at once")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--lives", type=int, default=0, help="JobSpecs that also run and succeed")
    parser.add_argument("--no-raw", dest="raw", action="store_false", help="leave out the API servers' own rate")
    parser.add_argument("--profile", type=Path, help="write a profile of the operator while it places the jobs, as folded stacks (py-spy)")
    parser.add_argument("--no-page", dest="page", action="store_false", help="print only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ty-", dir="/tmp") as folder:
        nodes = (FakeNodes("gpu", 45),)
        members = tuple(Member(f"m{n}", Path(folder) / f"m{n}", fake=nodes, with_kuberay=False) for n in range(given.members))
        clusters = Clusters(Hub("hub", Path(folder) / "hub"), members)
        port = free_port()
        options = ["--qps", "2000", "--member-qps", "1000", "--metrics-port", str(port)]
        operator = Operator(Path(folder), Path(folder) / "kubeconfig", options=options)
        try:
            clusters.start()
            prepared(clusters, tokens=True)
            operator.kubeconfig.write_text(by_token(clusters.hub))
            operator.start()
            until(lambda: "leading as" in operator.log, "the operator leads")
            found = asyncio.run(measure(Stage(clusters, operator, port), given))
        finally:
            operator.processes.end_all()
            clusters.close()
    if given.page:
        write_page("hub_throughput", f"{given.jobs:,} JobSpecs at once", page(given, found))


COLUMNS = (
    "jobs/s",
    "wall s",
    "cores in use",
    "operator CPU ms/job",
    "API servers + etcd CPU ms/job",
    "all but the client, CPU ms/job",
    "client CPU ms/job",
    "operator's writes/job",
    "memory, MB",
)


def row(result: Result) -> list[str]:
    servers = result.per_job_ms("API servers") + result.per_job_ms("etcd")
    own = [f"{result.rate:.1f}", f"{result.took_s:.1f}", f"{result.cores:.2f}", f"{result.per_job_ms('operator'):.1f}"]
    own += [f"{servers:.1f}", f"{result.ms_per_job:.1f}"]
    return [*own, f"{result.per_job_ms('this client'):.1f}", f"{result.operator_writes:.1f}", f"{result.peak_mb:.0f}"]


def page(given: argparse.Namespace, found: dict[str, Result]) -> list[str]:
    where = f"one hub with {given.members} members of 45 machines x 8 GPUs"
    alone = found["left alone"]
    lines = [
        f"{given.jobs:,} JobSpecs of one train task each, on {where}. Clock: from the first creation to the last RayJob, creating",
        f"them included ({AT_ONCE} requests at once, {alone.submitted_s:.1f} s). Client, API servers, etcd and operator share the cores.",
        "All sign with a service account's token, as in a cluster. Raw: the writes that a job needs, by the same client without a hub:",
        "JobSpec, a status, NetworkPolicy and RayJob; in the second row another status.",
        "Whole lives: until nothing is left on a member; what an attempt itself writes, three requests, is the client's here.",
        "",
        f"| | {' | '.join(COLUMNS)} | doubled | lost |",
        f"|{'---|' * (len(COLUMNS) + 3)}",
    ]
    lines += [f"| {name} | {' | '.join(row(result))} | {result.doubled} | {result.lost} |" for name, result in found.items()]
    ratios = [f"{alone.rate / result.rate:.2f} of {name}" for name, result in found.items() if name.startswith("raw")]
    if ratios:
        lines += ["", f"The hub reaches {', '.join(ratios)}."]
    counted = [result for result in found.values() if result.requests]
    shown = [name for name, count in (sum((result.requests for result in counted), Counter())).most_common() if count >= alone.jobs / 50]
    lines += ["", "Requests of the operator per job, where there is one for fifty jobs:", "", f"| | {' | '.join(sorted(shown))} |"]
    lines.append(f"|{'---|' * (len(shown) + 1)}")
    for name, result in found.items():
        if result.requests:
            lines.append(f"| {name} | " + " | ".join(f"{result.requests[each] / result.jobs:.2f}" for each in sorted(shown)) + " |")
    return lines


if __name__ == "__main__":
    main()
