"""How long one scheduling cycle takes, on one core: `python benchmarks/scheduler_cycle.py` writes docs/benchmarks/scheduler_cycle.md.

The native core beside the Python scheduler, in pairs; the same decisions (tests/unit/federation/test_native.py). All times are of the
process's own, so that what else runs changes them little.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.philly_figures import standalone  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402

from tuneyard.federation import (  # noqa: E402
    Ask,
    Member,
    NativeScheduler,
    Node,
    Place,
    Running,
    Scheduler,
    SkuFacts,
    Team,
    World,
    forecast,
)
from tuneyard.federation.native import SWITCH  # noqa: E402
from tuneyard.tracking.charts import Line  # noqa: E402

T = TypeVar("T")
Maker = Callable[[World, str, float], Scheduler]
NOW = 1e6
NOTES = [
    "Clusters of 100 nodes x 8 GPUs, three kinds of GPU, 200 teams, jobs of 1 to 256 GPUs in the proportions of the Philly trace (most are",
    "small), a tenth elastic; durations log-normal. *Cold*: from a snapshot to decisions, everything is new to the scheduler; 200",
    "quotas, a tenth of high priority. *A change* in a world that is full: a job ends, or one more comes. *At rest*: one priority, no",
    "quotas, nobody may ask others to go. *Gangs have starved*: those of 8 and more look for victims. *Quotas*: teams take back what is",
    "theirs, those of high priority look for victims, and 1,000 attempts report a checkpoint before the job ends, which counts.",
    "",
    "Medians of CPU time on one core, the core (C++) and the Python scheduler in turns; ratio: the median of pairs. Both decide the same.",
]
KINDS = (SkuFacts("a100-80gb", 8, 1.8), SkuFacts("h100-80gb", 8, 3.0), SkuFacts("l40s", 8, 0.9))
TEAMS = 200
SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256])
SHARES = np.array([0.55, 0.1, 0.1, 0.15, 0.05, 0.03, 0.01, 0.007, 0.003])


def make_world(
    clusters: int,
    waiting: int,
    *,
    seed: int = 1,
    nodes: int = 100,
    full: float = 0.0,
    high: float = 0.1,
    quotas: bool = True,
    since: float = 0.0,
) -> World:
    """A world. `full`: the share of GPUs that attempts hold already; `high`: asks of high priority; `since`: when the first came."""
    chance = np.random.default_rng(seed)
    members, running = [], []
    for number in range(clusters):
        sku = KINDS[number % len(KINDS)]
        name = f"c{number:03}"
        free = {f"{name}-n{node:03}": 8 for node in range(nodes)}
        for node in list(free):
            if chance.random() < full:
                running.append(make_running(f"r/{node}", name, sku.name, {node: 8}, chance))
                free[node] = 0
        members.append(Member(name=name, skus=(sku,), nodes=tuple(Node(node, sku.name, 8, left) for node, left in free.items())))
    # Quotas are half of what there is: the rest is borrowed.
    quota = {sku.name: max(8, clusters * nodes * 8 // (2 * TEAMS * len(KINDS))) for sku in KINDS}
    teams = tuple(Team(name=f"t{number:03}", quota=quota if quotas else None) for number in range(TEAMS))
    asks = tuple(replace(ask, created=since + ask.created * (1.0 if not since else 0.01)) for ask in make_asks(waiting, chance, high=high))
    return World(members=tuple(members), asks=asks, running=tuple(running), teams=teams)


def make_asks(count: int, chance: np.random.Generator, first: int = 0, high: float = 0.0) -> Iterator[Ask]:
    sizes = chance.choice(SIZES, count, p=SHARES / SHARES.sum())
    hours = chance.lognormal(0.5, 1.5, count)
    for number in range(count):
        size = int(sizes[number])
        elastic = chance.random() < 0.1 and size > 1
        skus = [(), ("h100-80gb",), ("a100-80gb",), ("h100-80gb", "a100-80gb")][int(chance.integers(4))]
        yield Ask(
            job=f"j/{first + number:06}",
            task="train",
            team=f"t{int(chance.integers(TEAMS)):03}",
            priority="high" if chance.random() < high else "normal",
            created=float(number),
            worlds=(size, size // 2) if elastic else (size,),
            skus=skus,
            seconds=float(hours[number] * 3600),
        )


def make_running(job: str, cluster: str, sku: str, nodes: dict[str, int], chance: np.random.Generator) -> Running:
    ends = float(chance.lognormal(0.5, 1.5) * 3600) + 1e6
    saved = 1e6 - float(chance.random() * 1800)
    team = f"t{int(chance.integers(TEAMS)):03}"
    common = {"task": "train", "team": team, "priority": "normal", "started": 1e6 - 7200}
    return Running(job=job, cluster=cluster, sku=sku, nodes=nodes, ends=ends, saved=saved, **common)


def cold(make: Maker, world: World) -> tuple[float, int]:
    """CPU seconds from a snapshot to decisions; and the number of placements."""
    gc.collect()
    began = time.process_time()
    decisions = make(world, "tuneyard", NOW).cycle(NOW)
    return time.process_time() - began, sum(isinstance(decision, Place) for decision in decisions)


class Changing:
    """A scheduler whose GPUs are all taken, and that has come to rest as far as it does. `progress`: attempts that report a checkpoint
    before each cycle."""

    def __init__(self, make: Maker, world: World, progress: int = 0) -> None:
        self._scheduler = make(world, "tuneyard", NOW)
        self._now = NOW
        self._progress = progress
        self._chance = np.random.default_rng(7)
        self._count = 0
        for _ in range(10):
            self._now += 1
            if not settle(self._scheduler, self._now):
                break

    def once(self) -> tuple[float, float]:
        """CPU seconds of a cycle after one job has ended, and after one was submitted, reports of progress included."""
        running = sorted((attempt for attempt in self._scheduler.running if not attempt.stopping), key=lambda attempt: attempt.key)
        going = running[int(self._chance.integers(len(running)))]
        moved = self._chance.choice(len(running), min(self._progress, len(running)), replace=False)
        self._now += 1
        reports = [replace(running[int(at)], saved=self._now) for at in moved if running[int(at)] is not going]
        ended = self._timed(lambda: self._scheduler.release(going.job, going.task, self._now), reports)
        self._now += 1
        self._count += 1
        (ask,) = make_asks(1, self._chance, first=900_000 + self._count)
        return ended, self._timed(lambda: self._scheduler.add(replace(ask, created=self._now)), [])

    def _timed(self, change: Callable[[], None], reports: Sequence[Running]) -> float:
        began = time.process_time()
        for report in reports:
            self._scheduler.hold(report, self._now)
        change()
        self._scheduler.cycle(self._now)
        return time.process_time() - began


def settle(scheduler: Scheduler, now: float) -> int:
    """One cycle, after which all who were asked to go have gone. How many decisions it took."""
    decisions = scheduler.cycle(now)
    for attempt in [attempt for attempt in scheduler.running if attempt.stopping]:
        scheduler.release(attempt.job, attempt.task, now)
    return len(decisions)


def in_turns(times: int, first: Callable[[], T], second: Callable[[], T]) -> tuple[list[T], list[T]]:
    """Both, again and again, so that what else the machine does meets both."""
    pairs = [(first(), second()) for _ in range(times)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def row(name: str, aim: str, native: Sequence[float], python: Sequence[float]) -> str:
    """Medians in milliseconds, the worst of the core's, and the median ratio of pairs."""
    ratio = statistics.median(slow / fast for fast, slow in zip(native, python, strict=True))
    mine, theirs = statistics.median(native) * 1e3, statistics.median(python) * 1e3
    line = f"| {name} | {mine:.2f} | {max(native) * 1e3:.2f} | {theirs:.1f} | {ratio:.0f} | {aim} |"
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    lines = ["| | core, ms | worst | Python, ms | ratio | aim, ms |", "|---|---:|---:|---:|---:|---:|"]
    courses: dict[str, list[tuple[float, float]]] = {}
    for clusters, waiting in ((10, 1_000), (10, 10_000), (10, 100_000), (100, 1_000), (100, 10_000), (100, 100_000)):
        world = make_world(clusters, waiting)
        rounds = given.rounds if waiting < 100_000 else 3
        native, python = in_turns(
            rounds, lambda world=world: cold(NativeScheduler.of, world), lambda world=world: cold(Scheduler.of, world)
        )
        assert {count for _, count in native} == {count for _, count in python}
        name = f"cold, {clusters * 100:,} nodes, {waiting:,} wait, {native[0][1]:,} placed"
        lines.append(
            row(name, "60" if (clusters, waiting) == (100, 10_000) else "", *([took for took, _ in each] for each in (native, python)))
        )
        courses.setdefault(f"{clusters} clusters", []).append((waiting / 1000, statistics.median(took for took, _ in native)))
    for clusters, waiting, progress, what, world in (
        (100, 10_000, 0, "at rest", make_world(100, 10_000, full=1.0, high=0.0, quotas=False, since=NOW - 3600)),
        (100, 100_000, 0, "at rest", make_world(100, 100_000, full=1.0, high=0.0, quotas=False, since=NOW - 3600)),
        (100, 100_000, 0, "gangs have starved", make_world(100, 100_000, full=1.0, high=0.0, quotas=False)),
        (100, 10_000, 1000, "quotas, 1,000 reports of progress", make_world(100, 10_000, full=1.0, quotas=True)),
    ):
        native, python = in_turns(
            given.rounds * 2, Changing(NativeScheduler.of, world, progress).once, Changing(Scheduler.of, world, progress).once
        )
        for at, change in enumerate(("job ends", "job comes")):
            aim = "10" if progress else "2" if what == "at rest" else ""
            name = f"{change}, {clusters * 100:,} nodes, {waiting:,} wait, {what}"
            lines.append(row(name, aim, [each[at] for each in native], [each[at] for each in python]))
    world = make_world(10, 1_000, full=1.0, high=0.0, quotas=False, since=NOW - 3600)
    native, python = in_turns(3, lambda: forecasting(world, "1"), lambda: forecasting(world, "0"))
    lines.append(row("forecast of 1,000 who wait", "100", native, python))
    drawn = [Line(name, points, f"s{number}") for number, (name, points) in enumerate(courses.items())]
    chart = standalone(drawn, "Seconds of a cold cycle", over="thousand tasks wait")
    (ROOT / "docs" / "benchmarks" / "scheduler_cycle.svg").write_text(chart, encoding="utf-8")
    lines += ["", "![Seconds of a cold cycle by thousands of waiting tasks](scheduler_cycle.svg)"]
    write_page("scheduler_cycle", "One scheduling cycle", [*NOTES, "", *lines])


def forecasting(world: World, native: str) -> float:
    """CPU seconds until the start of all is predicted."""
    os.environ[SWITCH] = native
    began = time.process_time()
    forecast(world, "tuneyard", NOW, limit=5000)
    took = time.process_time() - began
    del os.environ[SWITCH]
    return took


if __name__ == "__main__":
    main()
