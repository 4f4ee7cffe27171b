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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kueue_cases import Object, Shape, generator_config, jobspec, shape_of, team  # noqa: E402 -- found by the line above
from benchmarks.played_runs import play  # noqa: E402
from tests.hubs import API, Operator, phases, prepared, until  # noqa: E402
from tests.testcluster import Hub, Member, kueue  # noqa: E402
from tests.testcluster.clusters import Clusters  # noqa: E402
from tests.testcluster.fake_nodes import FakeNodes  # noqa: E402
from tests.testcluster.progress import stage  # noqa: E402

SLOTS_PER_NODE = 20


@dataclass(frozen=True)
class Outcome:
    wall_s: float
    quota_in_use: float
    """Share of quota x wall that started workloads held, until the system had noticed their end."""
    waits_s: Mapping[str, Sequence[float]]
    """Class -> time to admission of each workload."""
    cpu_s: float
    preempted: int


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


def through_tuneyard(folder: Path, shape: Shape, members: int) -> Outcome:
    # Wherever quota allows a gang, some member has room for it: quota is what binds, as on Kueue's side, which knows no nodes.
    largest = max(kind.slots for kind in shape.kinds)
    nodes = -(-(shape.capacity + members * largest) // (members * SLOTS_PER_NODE))
    machines = (FakeNodes("cpu", nodes, gpus=SLOTS_PER_NODE),)
    own = tuple(Member(f"m{number}", folder / f"m{number}", fake=machines, with_kuberay=False) for number in range(members))
    clusters = Clusters(Hub("hub", folder / "hub"), own)
    operator = Operator(folder, clusters.hub.kubeconfig, options=["--qps", "2000", "--member-qps", "1000"])
    try:
        clusters.start()
        prepared(clusters, sku="cpu", gpus_per_node=SLOTS_PER_NODE)
        for cohort in range(shape.cohorts):
            for queue in range(shape.queues):
                clusters.hub.api.create(f"{API}/teams", team(shape, cohort, queue))
        operator.start()
        until(lambda: "leading as" in operator.log, "the operator leads")
        _warm_up(clusters, shape)
        cpu = operator.cpu_s
        with stage("Tuneyard"):
            theatre, wall_s = asyncio.run(play(clusters, shape))
        in_use = theatre.held_s / (shape.capacity * wall_s)
        return Outcome(wall_s, in_use, theatre.waits_s(), operator.cpu_s - cpu, theatre.preempted)
    except (TimeoutError, AssertionError, SystemExit):
        print(operator.log[-3000:] if operator.processes.pid(operator.name) else "the operator has ended", file=sys.stderr)
        raise
    finally:
        operator.processes.end_all()
        clusters.close()


def _warm_up(clusters: Clusters, shape: Shape) -> None:
    """One job from end to end, after which the hub has connected to its members: Kueue's runner connects before it begins."""
    first = jobspec(shape.kinds[0], 0, 0, 0)
    first["metadata"]["name"] = "warm-up"
    path = f"{API}/namespaces/default/jobspecs"
    clusters.hub.api.create(path, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", **first})
    until(lambda: phases(clusters.hub).get("warm-up") == "Starting", "a first job starts", 120)
    clusters.hub.api.delete(f"{path}/warm-up")
    until(lambda: not phases(clusters.hub), "the first job is gone", 60)


# --- the page


def page(given: argparse.Namespace, shape: Shape, theirs: Outcome, ours: Outcome) -> list[str]:
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
        "Admission: from the moment a JobSpec is sent until its RayJob is seen. A run holds its quota until its RayJob is gone.",
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
            outcomes["tuneyard"] = through_tuneyard(Path(folder), shape, given.members)
            _tell("tuneyard", outcomes["tuneyard"])
    if len(outcomes) == 2:
        from benchmarks.training_cases import write_page

        title = "The shape of Kueue's scheduler benchmark"
        write_page("kueue_shape", title, page(given, shape, outcomes["kueue"], outcomes["tuneyard"]))


def _tell(who: str, outcome: Outcome) -> None:
    waits = ", ".join(f"{kind} {mean(waits):.2f} s" for kind, waits in outcome.waits_s.items())
    print(f"{who}: {outcome.wall_s:.1f} s, {outcome.quota_in_use:.0%} of quota in use, admitted after: {waits}", end="; ")
    print(f"CPU {outcome.cpu_s:.1f} s, preempted {outcome.preempted}", flush=True)


if __name__ == "__main__":
    main()
