"""Generated traces under our rules, beside the rules of Kueue and of Slurm as far as our simulator expresses them.

`python benchmarks/scheduler_traces.py [--seeds 3] [--trace bursty] [--policy NAME ...]`: writes docs/benchmarks/scheduler_traces.md, unless
only some traces or policies were asked for. Each trace is drawn with each seed. A figure is the mean over the seeds, a longest one the
longest of all. A replay's cost is its CPU time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.generated_traces import Trace, bursty, daily  # noqa: E402 -- found by the line above

from tuneyard.federation import Team  # noqa: E402
from tuneyard.federation.simulation import Life, Run, Scenario, results_of, simulate  # noqa: E402
from tuneyard.federation.simulation.own_quota import own_quota_waits  # noqa: E402

HOUR_S = 3600.0
GANG = 32
TRACES = {"bursty": bursty, "daily": daily}
POLICIES = ("fifo-first-fit", "best-effort-fifo", "shortest-first-oracle", "tuneyard", "kueue-rules", "slurm-rules")
LONGEST = ("longest_wait_s", "most_preemptions", "own_longest_s")
"""Figures of which the largest of all seeds is shown; of the others the mean."""

Figures = dict[str, float]


def teams_for(policy: str, teams: Sequence[Team]) -> tuple[Team, ...]:
    """Slurm has no quota that others borrow: its teams have as many shares as they have quota."""
    if policy != "slurm-rules":
        return tuple(teams)
    return tuple(Team(name=team.name, weight=float(sum((team.quota or {}).values()) or 1)) for team in teams)


def replay(kind: str, policy: str, seed: int) -> Figures:
    """All figures of one trace under one policy."""
    trace = TRACES[kind](seed)
    scenario = Scenario(policy=policy, teams=teams_for(policy, trace.teams))
    began = time.process_time()
    run = simulate(trace.jobs, trace.members, scenario, np.random.default_rng(seed))
    return {**figures(run, trace), "cpu_s": time.process_time() - began}


def figures(run: Run, trace: Trace) -> Figures:
    """What the page shows of a run."""
    found = results_of(run)
    own = own_quota_waits(run.lives, trace.teams, run.ended_s)  # of the quotas that the rules of Slurm do without, too
    names = ("mean_jct_s", "p99_jct_s", "mean_wait_s", "p99_wait_s", "longest_wait_s", "gpu_utilisation", "lost_gpu_hours", "fairness")
    return {
        **{name: float(getattr(found, name)) for name in (*names, "preemptions")},
        "jobs": found.jobs,
        "unfinished": found.unfinished + found.refused,
        "most_preemptions": found.most_preemptions_of_one,
        "gang_jct_s": _mean_jct_s(run.lives, at_least=GANG),
        "small_jct_s": _mean_jct_s(run.lives, at_most=1),
        "until_last_submission": _held_until(run.lives, trace) / (run.total_gpus * max(job.submit_s for job in trace.jobs)),
        "own_longest_s": float(own.max()) if len(own) else 0.0,
        "own_p99_s": float(np.percentile(own, 99)) if len(own) else 0.0,
    }


def _mean_jct_s(lives: Sequence[Life], at_least: int = 1, at_most: int = 10**9) -> float:
    found = [life.ended_at - life.job.submit_s for life in lives if life.ended_at is not None and at_least <= life.job.gpus <= at_most]
    return float(np.mean(found)) if found else 0.0


def _held_until(lives: Sequence[Life], trace: Trace) -> float:
    """GPU-seconds held until the last submission."""
    last_s = max(job.submit_s for job in trace.jobs)
    return sum(
        stay.gpus * max(0.0, min(stay.ended, last_s) - stay.started) for life in lives for stay in life.stays if stay.started < last_s
    )


def together(found: Sequence[Figures]) -> Figures:
    """Of several seeds."""
    return {name: float((max if name in LONGEST else np.mean)([each[name] for each in found])) for name in found[0]}


HEAD = [
    "| policy | mean completion, h | p99 | gangs of 32 and more | single GPUs | mean wait, h | p99 | longest | GPUs in use "
    "| lost GPU-hours | preemptions | most of one job | fairness | CPU s |",
    "|---|" + "---:|" * 13,
]
HEAD_OWN = [
    "| policy | own quota: longest wait, h | p99, h |",
    "|---|---:|---:|",
]


def hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:,.2f}" if seconds < 10 * HOUR_S else f"{seconds / HOUR_S:,.1f}"


def row(policy: str, found: Mapping[str, float]) -> str:
    cells = [policy]
    cells += [hours(found[name]) for name in ("mean_jct_s", "p99_jct_s", "gang_jct_s", "small_jct_s")]
    cells += [hours(found[name]) for name in ("mean_wait_s", "p99_wait_s", "longest_wait_s")]
    cells += [f"{found['until_last_submission']:.1%}", f"{found['lost_gpu_hours']:,.0f}", f"{found['preemptions']:,.0f}"]
    cells += [f"{found['most_preemptions']:.0f}", f"{found['fairness']:.3f}", f"{found['cpu_s']:.1f}"]
    return f"| {' | '.join(cells)} |"


def own_row(policy: str, found: Mapping[str, float]) -> str:
    return f"| {policy} | {hours(found['own_longest_s'])} | {hours(found['own_p99_s'])} |"


WORDS = {
    "bursty": [
        "40 teams without quotas on 352 GPUs of two SKUs, in hosts of 8 and of 4. Sizes of bursts, durations and teams have heavy tails;",
        "three priorities; a third of the gangs of 8 and more may start with a quarter of their GPUs.",
    ],
    "daily": [
        "Three teams of one cohort on 320 a100-80gb, with quotas of 192, 64 and 64: gangs of 32, 64 and 128 GPUs, jobs of 4 to 32, and",
        "floods of single GPUs, most of them in the afternoon.",
    ],
}


def page(found: Mapping[str, Mapping[str, Figures]], seeds: int) -> list[str]:
    lines = [
        f"Load 0.9, {seeds} seeds: the longest wait and the most preemptions of one job are the largest of all seeds, other figures means.",
        "All but the oracle are told durations with a log-normal error of sigma 0.7. GPUs in use: until the last submission; other",
        "figures: [Simulate](../simulate.md). [Generator](../../benchmarks/generated_traces.py). What of the peers' rules is missing:",
        "[policy](../../platform/tuneyard/federation/policy.py). Beside [Philly's](philly_replay.md), no public trace was at hand.",
    ]
    for kind, by_policy in found.items():
        jobs = next(iter(by_policy.values()))["jobs"]
        lines += ["", f"## {kind}", "", *WORDS[kind], f"{jobs:,.0f} jobs.", "", *HEAD]
        lines += [row(policy, each) for policy, each in by_policy.items()]
        if any(each["own_longest_s"] for each in by_policy.values()):
            lines += [
                "",
                "Own quota: how long an ask waits at a stretch while it fits into what its team has not used of its quota.",
                "",
                *HEAD_OWN,
            ]
            lines += [own_row(policy, each) for policy, each in by_policy.items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trace", choices=list(TRACES), nargs="+", default=list(TRACES))
    parser.add_argument("--policy", choices=POLICIES, nargs="+", default=list(POLICIES))
    parser.add_argument("--workers", type=int, default=1, help="replays at the same time")
    options = parser.parse_args()
    found: dict[str, dict[str, Figures]] = {}
    with ProcessPoolExecutor(options.workers) as pool:
        for kind in options.trace:
            found[kind] = {}
            for policy in options.policy:
                runs = list(pool.map(replay, *zip(*((kind, policy, seed) for seed in range(1, options.seeds + 1)), strict=True)))
                found[kind][policy] = together(runs)
                print(kind, row(policy, found[kind][policy]), own_row(policy, found[kind][policy]), flush=True)
    if len(options.trace) == len(TRACES) and len(options.policy) == len(POLICIES):
        from benchmarks.training_cases import write_page  # loads torch, which the replays need not

        write_page("scheduler_traces", "Generated traces: our rules beside those of Kueue and of Slurm", page(found, options.seeds))


if __name__ == "__main__":
    main()
