"""How long one scheduling cycle takes, on one core: `python benchmarks/scheduler_cycle.py` writes docs/benchmarks/scheduler_cycle.md.

Clusters of 100 nodes x 8 GPUs, three kinds of GPU, 200 teams with quota, jobs of 1 to 256 GPUs in the proportions of the Philly trace
(most are small), a tenth elastic, a tenth of high priority; durations log-normal. Cold: everything is new to the scheduler. One change: a
job ends, or one more is submitted, in a world that is full and at rest: one priority, no quotas, so that nobody may ask others to go. While
teams take back what is theirs, and those of high priority look for victims, a cycle costs more: the last line. All times are of the
process's own, so that what else runs changes them little.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.philly_figures import standalone  # noqa: E402 -- found by the line above
from benchmarks.training_cases import write_page  # noqa: E402

from tuneyard.federation import Ask, Member, Node, Place, Running, Scheduler, SkuFacts, Team, World, scheduler_of  # noqa: E402
from tuneyard.tracking.charts import Line  # noqa: E402

KINDS = (SkuFacts("a100-80gb", 8, 1.8), SkuFacts("h100-80gb", 8, 3.0), SkuFacts("l40s", 8, 0.9))
TEAMS = 200
SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256])
SHARES = np.array([0.55, 0.1, 0.1, 0.15, 0.05, 0.03, 0.01, 0.007, 0.003])


def make_world(
    clusters: int, waiting: int, *, seed: int = 1, nodes: int = 100, full: float = 0.0, high: float = 0.1, quotas: bool = True
) -> World:
    """A world; `full`: the share of GPUs that attempts hold already, `high`: that of asks of high priority."""
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
    return World(members=tuple(members), asks=tuple(make_asks(waiting, chance, high=high)), running=tuple(running), teams=teams)


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


def cold(clusters: int, waiting: int, rounds: int) -> tuple[float, int]:
    """Seconds from a snapshot to decisions, the least of all rounds; and the number of placements."""
    world = make_world(clusters, waiting)
    times, count = [], 0
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        decisions = scheduler_of(world, "tuneyard", 1e6).cycle(1e6)
        times.append(time.process_time() - began)
        count = sum(isinstance(decision, Place) for decision in decisions)
    return min(times), count


def changes(clusters: int, waiting: int, rounds: int, *, rest: bool = True) -> tuple[list[float], list[float]]:
    """Seconds of a cycle after one job has ended, and after one was submitted, in a world whose GPUs are all taken."""
    scheduler = scheduler_of(make_world(clusters, waiting, full=1.0, high=0.0 if rest else 0.1, quotas=not rest), "tuneyard", 1e6)
    now = 1e6
    for _ in range(10):
        now += 1
        if not settle(scheduler, now):
            break
    chance = np.random.default_rng(7)
    ended, submitted = [], []
    for number, ask in zip(range(rounds), make_asks(rounds, chance, first=900_000), strict=False):
        now += 1
        going = next(attempt for attempt in scheduler.running if not attempt.stopping)
        began = time.process_time()
        scheduler.release(going.job, going.task, now)
        scheduler.cycle(now)
        ended.append(time.process_time() - began)
        now += 1
        began = time.process_time()
        scheduler.add(replace(ask, created=now, job=f"new/{number}"))
        scheduler.cycle(now)
        submitted.append(time.process_time() - began)
    return ended, submitted


def settle(scheduler: Scheduler, now: float) -> int:
    """One cycle, after which all who were asked to go have gone. How many decisions it took."""
    decisions = scheduler.cycle(now)
    for attempt in [attempt for attempt in scheduler.running if attempt.stopping]:
        scheduler.release(attempt.job, attempt.task, now)
    return len(decisions)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", metavar="CLUSTERS,WAITING")
    given = parser.parse_args()
    if given.profile:
        import cProfile

        clusters, waiting = map(int, given.profile.split(","))
        world = make_world(clusters, waiting)
        cProfile.runctx("scheduler_of(world, 'tuneyard', 1e6).cycle(1e6)", globals(), {"world": world}, sort="tottime")
        return
    lines = ["| clusters x nodes x GPUs | waiting | cold, s | placed in it | job ends, ms (median, worst) | job comes, ms |"]
    lines.append("|---|---|---|---|---|---|")
    courses: dict[str, list[tuple[float, float]]] = {}
    for clusters, waiting in ((10, 1_000), (10, 10_000), (10, 100_000), (100, 1_000), (100, 10_000), (100, 100_000)):
        took, count = cold(clusters, waiting, given.rounds if waiting < 100_000 else 2)
        ended, submitted = changes(clusters, waiting, 20)
        changed = " | ".join(f"{statistics.median(each) * 1e3:.1f}, {max(each) * 1e3:.1f}" for each in (ended, submitted))
        lines.append(f"| {clusters} x 100 x 8 | {waiting:,} | {took:.2f} | {count:,} | {changed} |")
        print(lines[-1], flush=True)
        courses.setdefault(f"{clusters} clusters", []).append((waiting / 1000, took))
    ended, submitted = changes(100, 10_000, 5, rest=False)
    changed = " | ".join(f"{statistics.median(each) * 1e3:.1f}, {max(each) * 1e3:.1f}" for each in (ended, submitted))
    lines.append(f"| 100 x 100 x 8, while victims are looked for | 10,000 | | | {changed} |")
    drawn = [Line(name, points, f"s{number}") for number, (name, points) in enumerate(courses.items())]
    chart = standalone(drawn, "Seconds of a cold cycle", over="thousand tasks wait")
    (ROOT / "docs" / "benchmarks" / "scheduler_cycle.svg").write_text(chart, encoding="utf-8")
    lines += ["", "![Seconds of a cold cycle by thousands of waiting tasks](scheduler_cycle.svg)"]
    write_page("scheduler_cycle", "One scheduling cycle", lines)


if __name__ == "__main__":
    main()
