"""Fifteen weeks of a real GPU cluster (Microsoft Philly, 82,247 jobs) under four policies, and with machines that fail.

`python benchmarks/philly_replay.py [--jobs N] [--workers 1] [--seed 1] [--again NAME ...]`: writes docs/benchmarks/philly_replay.md and the
figures beside it. Each replay runs in a process of its own; what it took is its CPU time, so that a busy machine changes it little.
`--again`: run only these, and take the others from the last time (benchmarks/data/philly_results.json).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.philly_figures import draw  # noqa: E402 -- found by the line above

from tuneyard.cli.simulate.clusters import read_clusters  # noqa: E402
from tuneyard.cli.simulate.trace import read_trace  # noqa: E402
from tuneyard.federation import Team  # noqa: E402
from tuneyard.federation.simulation import Checkpoints, Failures, Scenario, TraceJob, results_of, simulate  # noqa: E402

DATA = ROOT / "benchmarks" / "data"
KEPT = DATA / "philly_results.json"
FIGURES = ROOT / "docs" / "benchmarks"
DAY_S, HOUR_S = 86400.0, 3600.0
SKU = "a100-80gb"
FAILING = Failures(node_every_s=30 * DAY_S, member_every_s=20 * DAY_S)
HORIZON_S = 180 * DAY_S
"""Long jobs that start from scratch after every failure would never end: with failures, the clock stops here."""
POLICIES = ("fifo-first-fit", "best-effort-fifo", "shortest-first-oracle", "tuneyard")
SCENARIOS = {
    **{name: Scenario(policy=name) for name in POLICIES},
    "quota": Scenario(policy="tuneyard"),
    "failures": Scenario(policy="tuneyard", failures=FAILING, until_s=HORIZON_S),
    "failures, from scratch": Scenario(policy="tuneyard", failures=FAILING, checkpoints=Checkpoints(every_s=None), until_s=HORIZON_S),
}


def quotas(jobs: Sequence[TraceJob], gpus: int) -> tuple[Team, ...]:
    """A quota for each team in proportion to its share of all GPU time; all lend to all."""
    used: dict[str, float] = {}
    for job in jobs:
        used[job.team] = used.get(job.team, 0.0) + job.gpus * job.duration_s
    whole = sum(used.values())
    return tuple(Team(name=name, quota={SKU: int(gpus * used[name] / whole)}, cohort="all") for name in sorted(used))


def replay(name: str, count: int | None, seed: int) -> dict[str, Any]:
    """All figures of one scenario, with samples over time for the drawings."""
    jobs = read_trace(DATA / "philly.csv.gz")[:count]
    members, _ = read_clusters(DATA / "philly_clusters.yaml")
    scenario = SCENARIOS[name]
    if name == "quota":
        scenario = replace(scenario, teams=quotas(jobs, sum(node.gpus for member in members for node in member.nodes)))
    said_at = time.monotonic()

    def progress(ended: int, now: float) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > 60:
            said_at = time.monotonic()
            print(
                f"{name}: day {now / DAY_S:.0f}, {ended:,} jobs have ended, {time.process_time() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    began = time.process_time()
    run = simulate(jobs, members, scenario, np.random.default_rng(seed), clock=time.process_time, progress=progress)
    cpu_s = time.process_time() - began
    samples = run.series.samples(run.total_gpus)
    course = {"day": samples.until_s / DAY_S, "queued_jobs": samples.queued_jobs, "utilisation": samples.utilisation}
    return {**results_of(run).to_dict(), "cpu_s": cpu_s, "course": {key: np.round(values, 4).tolist() for key, values in course.items()}}


def hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:,.1f}"


def row(name: str, found: dict[str, Any]) -> str:
    cells = [
        name,
        hours(found["mean_jct_s"]),
        hours(found["p99_jct_s"]),
        hours(found["mean_wait_s"]),
        hours(found["p50_wait_s"]),
        hours(found["p99_wait_s"]),
        hours(found["longest_wait_s"]),
        f"{found['gpu_utilisation']:.1%}",
        f"{found['lost_gpu_hours']:,.0f}",
        f"{found['preemptions']:,}",
        f"{found['fairness']:.3f}",
        f"{found['cpu_s']:.0f}",
        f"{1000 * found['seconds_per_cycle']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = [
    "| policy | mean completion, h | p99 | mean wait, h | p50 | p99 | longest | GPUs in use | lost GPU-hours | preemptions | fairness | "
    "CPU s | ms per cycle |",
    "|---|" + "---:|" * 12,
]


def team_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """Mean completion and p99 wait of each team, by policy."""
    names = [name for name in (*POLICIES, "quota") if name in found]
    by_name = {name: {team["team"]: team for team in found[name]["teams"]} for name in names}
    lines = [f"| team | jobs | GPU-hours | {' | '.join(names)} |", "|---|" + "---:|" * (2 + len(names))]
    for team, facts in by_name[names[0]].items():
        cells = [f"{hours(by_name[name][team]['mean_jct_s'])} / {hours(by_name[name][team]['p99_wait_s'])}" for name in names]
        lines.append(f"| {team} | {facts['jobs']:,} | {facts['gpu_hours']:,.0f} | {' | '.join(cells)} |")
    return lines


def aim_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """What was aimed at, and what came of it."""
    ours, by_age, oracle = found["tuneyard"], found["best-effort-fifo"], found["shortest-first-oracle"]
    starving = [team["team"] for team in ours["teams"] if team["longest_wait_s"] > by_age["longest_wait_s"]]
    lines = [
        "| aim | measured |",
        "|---|---|",
        f"| mean completion at most 1/5 of best-effort-fifo's | {ours['mean_jct_s'] / by_age['mean_jct_s']:.3f} |",
        f"| mean completion at most 1.25 of shortest-first-oracle's | {ours['mean_jct_s'] / oracle['mean_jct_s']:.2f} |",
        f"| p99 wait no worse than best-effort-fifo's | {hours(ours['p99_wait_s'])} h against {hours(by_age['p99_wait_s'])} h |",
        f"| no team starved: no job waits longer than the longest under best-effort-fifo ({hours(by_age['longest_wait_s'])} h) "
        f"| longest {hours(ours['longest_wait_s'])} h; starved: {', '.join(starving) or 'none'} |",
    ]
    if "failures" in found and "failures, from scratch" in found:
        kept, lost = found["failures"]["lost_gpu_hours"], found["failures, from scratch"]["lost_gpu_hours"]
        lines.append(f"| at least 10x fewer GPU-hours lost than from scratch | {lost / kept:.0f}x |")
    slowest = max(each["cpu_s"] for name, each in found.items() if name != "quota")
    quota = f"; with a quota for each team {found['quota']['cpu_s'] / 60:.1f} min" if "quota" in found else ""
    return [*lines, f"| one replay in under 5 minutes on one core | {slowest / 60:.1f} min for the slowest{quota} |"]


def quota_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    return [
        "`quota`: `tuneyard` once more, each team with a quota in proportion to its share of all GPU time, which the others may borrow.",
        "",
        *HEAD,
        row("tuneyard", found["tuneyard"]),
        row("quota", found["quota"]),
        "",
    ]


def failure_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["| | lost GPU-hours | mean completion, h | p99 | attempts that failed | jobs not ended |", "|---|" + "---:|" * 5]
    for name, label in (("failures", "checkpoint every 30 min"), ("failures, from scratch", "from scratch")):
        if name in found:
            each = found[name]
            cells = [f"{each['lost_gpu_hours']:,.0f}", hours(each["mean_jct_s"]), hours(each["p99_jct_s"])]
            lines.append(f"| {label} | {' | '.join(cells)} | {each['attempts_failed']:,} | {each['unfinished']:,} |")
    return lines


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    any_of = found["tuneyard"]
    failing = found.get("failures", {})
    return [
        f"{any_of['jobs']:,} jobs of 15 virtual clusters (teams) on 440 GPUs in nodes of 8, in members of 176, 112, 88 and 64 GPUs.",
        "All but the oracle are told durations with a log-normal error of sigma 0.7. What each figure means: [Simulate](../simulate.md);",
        "source of the trace: [benchmarks/data](../../benchmarks/data/README.md).",
        "",
        *aim_lines(found),
        "",
        "## Four policies",
        "",
        *HEAD,
        *(row(name, found[name]) for name in POLICIES),
        "",
        "![Jobs that wait, by policy](philly_queue.svg)",
        "",
        "![GPUs in use, by policy](philly_utilisation.svg)",
        "",
        "GPUs in use are of the time until the last job ends, which the few longest jobs draw out.",
        "",
        "## Teams",
        "",
        "Mean completion / p99 wait in hours.",
        "",
        *team_lines(found),
        "",
        *(quota_lines(found) if "quota" in found else []),
        "## With failures",
        "",
        "Each node fails every 30 days on average and is away for an hour, each member every 20 days and for four hours: "
        f"{failing.get('node_failures', 0):,} and {failing.get('member_failures', 0):,} failures.",
        f"`tuneyard`, the first {HORIZON_S / DAY_S:.0f} days. Lost: GPU time held that is not kept as work.",
        "",
        *failure_lines(found),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, help="the first N jobs only")
    parser.add_argument("--workers", type=int, default=1, help="replays at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", nargs="+", choices=list(SCENARIOS), help="only these")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if options.again and KEPT.exists() else {}
    with ProcessPoolExecutor(options.workers) as pool:
        futures = {name: pool.submit(replay, name, options.jobs, options.seed) for name in options.again or SCENARIOS}
        for name, future in futures.items():
            found[name] = future.result()
            print(row(name, found[name]), flush=True)
            if options.jobs is None:
                KEPT.write_text(json.dumps(found))
    if options.jobs is None and set(POLICIES) <= found.keys():
        from benchmarks.training_cases import write_page  # loads torch, which the replays need not

        draw(FIGURES, {name: found[name]["course"] for name in POLICIES})
        write_page("philly_replay", "Philly replay: four policies on a real trace, and with failures", page(found))


if __name__ == "__main__":
    main()
