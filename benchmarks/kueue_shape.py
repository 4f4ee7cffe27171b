"""The shape of Kueue's own scheduler benchmark, through Kueue and then through Tuneyard, on this machine.

`python benchmarks/kueue_shape.py [--divide 5] [--parts kueue tuneyard]`: writes docs/benchmarks/kueue_shape.md where both parts ran.
Teams in cohorts hand in many small, some medium and few large jobs at fixed intervals; somebody outside ends each after its time. Kueue's
side is its own runner, unchanged. On Tuneyard's each workload is a JobSpec, and its RayJob on a member is what runs.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

import psutil
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bare_writes import Bodies  # noqa: E402 -- found by the line above
from benchmarks.hub_throughput import each  # noqa: E402
from benchmarks.kueue_cases import Kind, Object, Shape, generator_config, jobspec, shape_of, team  # noqa: E402
from benchmarks.played_runs import play  # noqa: E402
from tests.clusters.hubs import API, Operator, by_token, phases, prepared, rayjobs, until  # noqa: E402
from tests.testcluster import Hub, Member, kueue  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402
from tests.testcluster.progress import stage  # noqa: E402

from tuneyard_operators.kube import from_kubeconfig_text  # noqa: E402

SLOTS_PER_NODE = 20


@dataclass(frozen=True)
class Outcome:
    wall_s: float
    quota_in_use: float
    """Share of quota x wall that started workloads held, until the system had noticed their end."""
    waits_s: Mapping[str, Sequence[float]]
    """Class -> time to admission of each workload."""
    cpu_s: float
    """Of the manager."""
    preempted: int
    servers_s: float = 0.0
    """CPU of API servers, etcd and controllers."""


# --- Kueue


def through_kueue(folder: Path, config: list[Object]) -> Outcome:
    """By its runner, from what that writes down."""
    generator, out = folder / "generator.yaml", folder / "kueue"
    generator.write_text(yaml.safe_dump(config))
    with stage("Kueue's runner"):
        kueue.run_benchmark(generator, out)
    (queues,) = yaml.safe_load((out / "summary.yaml").read_text())["clusterQueueClasses"].values()
    wall_s = (datetime.fromisoformat(queues["lastEventTime"]) - datetime.fromisoformat(queues["firstEventTime"])).total_seconds()
    used = sum(int(row["CPU used (mCPU * ms)"]) for row in _rows(out / "cqStates.csv")) / 1e6
    quota = sum(int(row["CPU quota (mCPU)"]) for row in _rows(out / "cqStates.csv")) / 1e3
    rows = _rows(out / "wlStates.csv")
    waits = {name: [int(r["ms to admitted"]) / 1000 for r in rows if r["class name"] == name] for name in {r["class name"] for r in rows}}
    stats = yaml.safe_load((out / "minimalkueue.stats.yaml").read_text())
    cpu_s = (stats["userMs"] + stats["sysMs"]) / 1000
    return Outcome(wall_s, used / (quota * wall_s), waits, cpu_s, sum(int(row["num evictions"]) for row in rows))


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


# --- Tuneyard


@dataclass(frozen=True)
class Bare:
    """The same workloads, each written once, without a hub."""

    wall_s: float
    servers_s: float
    """CPU of API servers, etcd and controllers."""


def servers_cpu_s(clusters: Clusters) -> float:
    """Of all processes of all clusters, so far."""
    times = [psutil.Process(pid).cpu_times() for each in clusters.all for pid in each.components().values() if pid is not None]
    return sum(time.user + time.system for time in times)


async def bare_writes(clusters: Clusters, shape: Shape, bodies: Bodies) -> Bare:
    """JobSpec, a status, NetworkPolicy and RayJob; then what the RayJob says at its end, both deletions and a status."""
    hub, *members = [await from_kubeconfig_text(by_token(one), qps=10_000, timeout_s=120) for one in clusters.all]
    kinds = [kind for kind in shape.kinds for _ in range(kind.count * shape.cohorts * shape.queues)]

    async def one(numbered: tuple[int, Kind]) -> None:
        number, kind = numbered
        name, member = f"bare-{number}", members[number % len(members)]
        spec = jobspec(kind, 0, 0, number)
        await bodies.begin(hub, member, name, {**spec, "metadata": {"name": name, "namespace": "default"}})
        await bodies.end(hub, member, name)

    before, began = servers_cpu_s(clusters), time.monotonic()
    await each(enumerate(kinds), one)
    found = Bare(time.monotonic() - began, servers_cpu_s(clusters) - before)
    for connection in (hub, *members):
        await connection.close()
    return found


def through_tuneyard(folder: Path, shape: Shape, members: int) -> tuple[Outcome, Bare]:
    """The hub, and then the same objects without one."""
    # Wherever quota allows a gang, some member has room for it: quota is what binds, as on Kueue's side, which knows no nodes.
    largest = max(kind.slots for kind in shape.kinds)
    nodes = -(-(shape.capacity + members * largest) // (members * SLOTS_PER_NODE))
    machines = (FakeNodes("cpu", nodes, gpus=SLOTS_PER_NODE),)
    own = tuple(Member(f"m{number}", folder / f"m{number}", fake=machines, with_kuberay=False) for number in range(members))
    clusters = Clusters(Hub("hub", folder / "hub"), own)
    operator = Operator(folder, folder / "kubeconfig", options=["--qps", "2000", "--member-qps", "1000"])
    try:
        clusters.start()
        prepared(clusters, sku="cpu", gpus_per_node=SLOTS_PER_NODE, tokens=True)
        operator.kubeconfig.write_text(by_token(clusters.hub))
        for cohort in range(shape.cohorts):
            for queue in range(shape.queues):
                clusters.hub.api.create(f"{API}/teams", team(shape, cohort, queue))
        operator.start()
        until(lambda: "leading as" in operator.log, "the operator leads")
        bodies = _warm_up(clusters, shape)
        cpu, servers = operator.cpu_s, servers_cpu_s(clusters)
        with stage("Tuneyard"):
            theatre, wall_s = asyncio.run(play(clusters, shape))
        in_use = theatre.held_s / (shape.capacity * wall_s)
        used = servers_cpu_s(clusters) - servers
        ours = Outcome(wall_s, in_use, theatre.waits_s(), operator.cpu_s - cpu, theatre.preempted, used)
        operator.stop()
        with stage("the writes alone"):
            bare = asyncio.run(bare_writes(clusters, shape, bodies))
        return ours, bare
    except (TimeoutError, AssertionError, SystemExit):
        print(operator.log[-3000:] if operator.processes.pid(operator.name) else "the operator has ended", file=sys.stderr)
        raise
    finally:
        operator.processes.end_all()
        clusters.close()


def _warm_up(clusters: Clusters, shape: Shape) -> Bodies:
    """One job from end to end, after which the hub has connected to its members: Kueue's runner connects before it begins."""
    first = jobspec(shape.kinds[0], 0, 0, 0)
    first["metadata"]["name"] = "warm-up"
    path = f"{API}/namespaces/default/jobspecs"
    clusters.hub.api.create(path, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", **first})
    until(lambda: phases(clusters.hub).get("warm-up") == "Starting", "a first job starts", 120)
    until(lambda: any(rayjobs(member) for member in clusters.members), "its RayJob is there", 60)
    bodies = Bodies.of(clusters, "warm-up")
    clusters.hub.api.delete(f"{path}/warm-up")
    until(lambda: not phases(clusters.hub), "the first job is gone", 60)
    return bodies


# --- the page


def page(given: argparse.Namespace, shape: Shape, theirs: Outcome, ours: Outcome, bare: Bare) -> list[str]:
    rows = [
        ("wall, s", f"{theirs.wall_s:.1f}", f"{ours.wall_s:.1f}", f"{ours.wall_s / theirs.wall_s:.2f}"),
        ("jobs/s", *(f"{shape.workloads / each.wall_s:.1f}" for each in (theirs, ours)), f"{theirs.wall_s / ours.wall_s:.2f}"),
        ("quota that runs used", f"{shape.bound_s / theirs.wall_s:.0%}", f"{shape.bound_s / ours.wall_s:.0%}", ""),
        ("quota in use, held by runs that nobody had cleared away included", f"{theirs.quota_in_use:.0%}", f"{ours.quota_in_use:.0%}", ""),
    ]
    for kind in reversed(shape.kinds):
        waits = [sorted(each.waits_s[kind.name]) for each in (theirs, ours)]
        cells = [f"{mean(wait):.2f} / {wait[int(len(wait) * 0.99)]:.2f}" for wait in waits]
        rows.append((f"time to admission, {kind.name}, mean / p99, s", *cells, f"{mean(waits[1]) / mean(waits[0]):.2f}"))
    rows.append(("preempted", str(theirs.preempted), str(ours.preempted), ""))
    rows.append(("CPU s of the manager", f"{theirs.cpu_s:.1f}", f"{ours.cpu_s:.1f}", f"{ours.cpu_s / theirs.cpu_s:.2f}"))
    return [
        *_words_of(shape),
        "",
        *_cost(shape, ours, bare),
        "",
        f"| | Kueue {kueue.VERSION} | Tuneyard | ratio |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"Kueue: its own runner with a {given.divide}th of its baseline's workloads, one API server, and `minimalkueue`, which by its own",
        "setting sends at most 50 requests a second. A workload is an object that is admitted, and that the runner marks as finished;",
        "nothing else is created for it.",
        "",
        f"Tuneyard: the operator of a hub with {given.members} members, each with an API server, controllers and a scheduler of its own.",
        "A workload is a JobSpec, placed as a gang on nodes of a member. Its RayJob is created there, marked as finished after the run",
        "time by somebody who watches the member, and removed by the operator. Wall: from the first creation until all say Succeeded.",
        "All sign with tokens, as in a cluster. Written once: JobSpec, a status, NetworkPolicy, RayJob, the RayJob's end, both",
        "deletions and a last status, by one client.",
        "Admission: from the moment a JobSpec is sent until its RayJob is seen. A run holds its quota until its RayJob is gone.",
    ]


def _cost(shape: Shape, ours: Outcome, bare: Bare) -> list[str]:
    """What a workload costs, beside the same objects without a hub."""
    whole, alone = (1000 * each / shape.workloads for each in (ours.cpu_s + ours.servers_s, bare.servers_s))
    return [
        "| CPU ms per workload | Tuneyard | its objects written once, without a hub | ratio |",
        "|---|---|---|---|",
        f"| operator, API servers, etcd, controllers | {whole:.1f} | {alone:.1f} | {whole / alone:.2f} |",
        f"| the operator's | {1000 * ours.cpu_s / shape.workloads:.1f} | | |",
        f"| cores in use | {(ours.cpu_s + ours.servers_s) / ours.wall_s:.2f} | {bare.servers_s / bare.wall_s:.2f} | |",
        f"| workloads/s | {shape.workloads / ours.wall_s:.1f} | {shape.workloads / bare.wall_s:.1f} | {bare.wall_s / ours.wall_s:.2f} |",
    ]


def _words_of(shape: Shape) -> list[str]:
    kinds = "; ".join(f"{k.count} {k.name}, one every {k.interval_s:g} s, {k.slots} slots for {k.seconds:g} s" for k in shape.kinds)
    team = f"a quota of {shape.quota} slots, may borrow {shape.borrowing}, and hands in"
    allowed = f"handed in within {shape.handed_in_s:.1f} s or more; the quota allows {shape.bound_s:.1f} s"
    return [
        f"{shape.cohorts} cohorts of {shape.queues} teams. Each team has {team}:",
        f"{kinds}.",
        f"{shape.workloads:,} workloads in all, {allowed}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--divide", type=int, default=5, help="so many times fewer workloads than Kueue's baseline has")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=("kueue", "tuneyard"), default=["kueue", "tuneyard"])
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clusters are ended on the way out
    with tempfile.TemporaryDirectory(prefix="ty-", dir="/tmp") as folder:
        config = generator_config(given.divide)
        shape = shape_of(config)
        outcomes = {}
        if "kueue" in given.parts:
            outcomes["kueue"] = through_kueue(Path(folder), config)
            _tell("kueue", outcomes["kueue"])
        if "tuneyard" in given.parts:
            outcomes["tuneyard"], bare = through_tuneyard(Path(folder), shape, given.members)
            _tell("tuneyard", outcomes["tuneyard"])
            print("\n".join(_cost(shape, outcomes["tuneyard"], bare)), flush=True)
    if len(outcomes) == 2:
        from benchmarks.training_cases import write_page

        title = "The shape of Kueue's scheduler benchmark"
        write_page("kueue_shape", title, page(given, shape, outcomes["kueue"], outcomes["tuneyard"], bare))


def _tell(who: str, outcome: Outcome) -> None:
    waits = ", ".join(f"{kind} {mean(waits):.2f} s" for kind, waits in outcome.waits_s.items())
    print(f"{who}: {outcome.wall_s:.1f} s, {outcome.quota_in_use:.0%} of quota in use, admitted after: {waits}", end="; ")
    print(f"CPU {outcome.cpu_s:.1f} s, preempted {outcome.preempted}", flush=True)


if __name__ == "__main__":
    main()
