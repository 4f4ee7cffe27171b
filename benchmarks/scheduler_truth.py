"""What the scheduler says of starts, beside what comes; and what a team gains by flooding or by understating its durations.

`python benchmarks/scheduler_truth.py [--seeds 8] [--part starts gains]`: writes docs/benchmarks/scheduler_truth.md where all parts are run.
All traces are those of `generated_traces.crowd`: 64 GPUs, six like teams, jobs of 1 to 32 GPUs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.generated_traces import A100, DAY_S, crowd  # noqa: E402 -- found by the line above
from benchmarks.said_starts import Said, said_starts, truth  # noqa: E402
from benchmarks.team_gains import Gain, flooding, lying  # noqa: E402

from tuneyard.federation import Team  # noqa: E402
from tuneyard.federation.simulation import Scenario  # noqa: E402

AHEAD = ((0, 0), (1, 10), (11, 50), (51, 200))
NOISES = {"exact": 0.0, "log-normal, sigma 0.7": 0.7}
QUOTAS = tuple(Team(name=f"team-{number}", quota={A100: 11 if number < 4 else 10}, cohort="all") for number in range(6))
WORLDS = {"without quotas": (), "with quotas": QUOTAS}
ESTIMATES: dict[str, Callable[[Said], float | None]] = {
    "forecast": lambda said: said.by_forecast_s,
    "wait": lambda said: said.by_wait_s,
}
ARRIVALS: dict[str, Callable[[Said], float]] = {
    "left out": lambda said: said.came_alone_s,
    "included": lambda said: said.came_s,
}
RULES = ("tuneyard", "best-effort-fifo", "kueue-rules", "slurm-rules")

STARTS_HEAD = [
    "| later arrivals | estimate | asks ahead | jobs | nothing said | p10 | median | p90 | within a fifth | within twice |",
    "|---|---|---|" + "---:|" * 7,
]
LIARS_HEAD = [
    "| policy | guesses | liar's mean completion | largest gain of a seed | others' mean completion | liar when honest, h |",
    "|---|---|" + "---:|" * 4,
]
FLOODS_HEAD = [
    "| policy | others' mean completion, h: no flooder | paced | flood | flooder's mean end after its first job, h: paced | flood |",
    "|---|" + "---:|" * 5,
]


def said_in(teams: tuple[Team, ...], noise: float, seeds: int) -> list[Said]:
    """What was said of some jobs of some crowds that are larger than the machines can serve."""
    found: list[Said] = []
    for seed in range(1, seeds + 1):
        scenario = Scenario(policy="tuneyard", noise=noise, teams=teams)
        found += said_starts(crowd(seed, 600, 4.0), scenario, seed)
    return found


def start_lines(said: Sequence[Said]) -> list[str]:
    """A row for each estimate, with later arrivals and without, and each number of asks ahead."""
    lines = list(STARTS_HEAD)
    for arrivals, came in ARRIVALS.items():
        for estimate, says in ESTIMATES.items():
            for least, most in (*AHEAD, (0, 200)):
                found = truth((says(each), came(each)) for each in said if least <= each.ahead <= most)
                if found is not None:
                    cells = [arrivals, estimate, f"{least} to {most}" if most > least else str(least), str(found.jobs), str(found.silent)]
                    cells += [f"{ratio:.2f}" for ratio in (found.p10, found.median, found.p90)]
                    cells += [f"{share:.0%}" for share in (found.within_a_fifth, found.within_twice)]
                    lines.append(f"| {' | '.join(cells)} |")
    return lines


def liar_line(policy: str, guesses: str, noise: float, seeds: int) -> str:
    """The liar's mean completion over that of the same team when it is honest, and the others'."""
    honest = [lying(policy, seed, stated_over_true=1.0, noise=noise) for seed in range(1, seeds + 1)]
    lied = [lying(policy, seed, stated_over_true=0.1, noise=noise) for seed in range(1, seeds + 1)]
    own = [one.own_s / other.own_s for one, other in zip(lied, honest, strict=True)]
    others = [one.others_s / other.others_s for one, other in zip(lied, honest, strict=True)]
    cells = [f"{np.mean(own) - 1:+.0%}", f"{min(own) - 1:+.0%}", f"{np.mean(others) - 1:+.0%}", _hours(honest, own=True)]
    return f"| {policy} | {guesses} | {' | '.join(cells)} |"


def flood_line(policy: str, seeds: int) -> str:
    """The others' mean completion with and without a flooder, and when the flooder's jobs end on average."""
    none, paced, flood = ([flooding(policy, seed, over_s=over_s) for seed in range(1, seeds + 1)] for over_s in (None, 3 * DAY_S, 0.0))
    cells = [_hours(each, own=False) for each in (none, paced, flood)] + [_hours(each, own=True) for each in (paced, flood)]
    return f"| {policy} | {' | '.join(cells)} |"


def _hours(gains: Sequence[Gain], *, own: bool) -> str:
    return f"{np.mean([gain.own_s if own else gain.others_s for gain in gains]) / 3600:.2f}"


def starts_page(seeds: int) -> list[str]:
    lines = [
        "## Said and actual starts",
        "",
        "Every tenth job of 600 that waits with at most 200 asks before it, at a load of 4: the wait that was said at submission, over the",
        "actual one. `forecast`: the scheduler run forward (`status.expectedStart`). `wait`: `Scheduler.explain(...).starts`; it assumes",
        "that each ask would be next. Later arrivals left out: the same world, had nobody come after the moment of saying.",
    ]
    for world, teams in WORLDS.items():
        for name, noise in NOISES.items():
            lines += ["", f"### Guesses {name}, {world}", "", *start_lines(said_in(teams, noise, seeds))]
            print(f"{name}, {world}: done", file=sys.stderr, flush=True)
    return lines


def gains_page(seeds: int) -> list[str]:
    lines = [
        "## Understated durations",
        "",
        "One of six like teams states a tenth of its durations, at a load of 1.0, beside the same team when it is honest. Below 0: a gain.",
        "",
    ]
    lines += LIARS_HEAD
    for policy in RULES:
        for name, noise in NOISES.items():
            if noise or policy == "tuneyard":
                lines.append(liar_line(policy, name, noise, seeds))
                print(lines[-1], flush=True)
    lines += [
        "",
        "## Floods",
        "",
        "A seventh team brings 3,000 jobs of one GPU, half an hour each in the median, all at once or evenly over three days. Others",
        "trickle at a load of 0.5. Ends count from the flooder's first submission.",
        "",
    ]
    lines += FLOODS_HEAD
    for policy in RULES:
        lines.append(flood_line(policy, seeds))
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--part", choices=("starts", "gains"), nargs="+", default=["starts", "gains"])
    options = parser.parse_args()
    lines: list[str] = []
    if "starts" in options.part:
        lines += [*starts_page(options.seeds), ""]
    if "gains" in options.part:
        lines += gains_page(options.seeds)
    if len(options.part) == 2:
        from benchmarks.training_cases import write_page  # loads torch, which the simulations need not

        write_page("scheduler_truth", "Said starts, floods and understated durations", lines)


if __name__ == "__main__":
    main()
