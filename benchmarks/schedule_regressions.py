"""Runs of a Schedule with a known drop: how often they are found to have regressed, over the same rows and as of other rows.

python benchmarks/schedule_regressions.py [--equal 2000] [--worse 300] [--out docs/benchmarks/schedule_regressions.md]

A model is right in 70 % of `rows` rows. In the next run a share of the rows (`noise`) is answered anew, right in 70 % too, and a drop in
points makes right answers wrong. Each case has one pair of runs per seed, and `worseBy: 0%`: only the test stands between noise and alarm.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from tuneyard.api.schedule_parts import Limit
from tuneyard.api.schedule_status import RunFigure, ScheduledRun
from tuneyard.metrics import METRICS
from tuneyard.metrics.aggregates import share_interval
from tuneyard.schedules.regression import judge
from tuneyard.scoring.paired.resampling import Resampled
from tuneyard.scoring.paired.row_sums import Numbers, RowSums
from tuneyard.scoring.paired.units import Units, units_of

RIGHT = 0.7
DRAWS = 500
"""A quarter of a report's, for the time that thousands of comparisons take."""
LIMITS = {"exact_match": Limit.model_validate({"worseBy": "0%"})}


@dataclass(frozen=True)
class Case:
    rows: int
    drop: float
    noise: float


EQUAL = [Case(1000, 0.0, 0.05), Case(200, 0.0, 0.05), Case(1000, 0.0, 0.01)]
WORSE = [Case(1000, 0.02, 0.01), Case(1000, 0.02, 0.05), Case(1000, 0.03, 0.05), Case(1000, 0.07, 0.05)]


def shares_found(case: Case, seeds: int) -> tuple[float, float]:
    """Shares of seeds with the verdict `regressed`: over the same rows, and as of other rows."""
    paired = unpaired = 0
    for seed in range(seeds):
        before, now = _answers(np.random.default_rng(seed), case)
        units = Units(case.rows, higher_is_better=True)
        units.add(units_of(0, case.rows, case.rows), _sums(now), _sums(before))
        change = Resampled.of(units.drawn(), draws=DRAWS, seed=seed).judge(METRICS["exact_match"].figures[0].value)
        assert change.interval is not None
        low, high = change.interval
        measured = {"change": change.difference, "change_low": low, "change_high": high, "change_rows": case.rows}
        figure = _figure(now).model_copy(update=measured)
        baseline = ScheduledRun(name="before", due="2026-11-23T02:00:00Z", figures=[_figure(before)])
        paired += judge(LIMITS, [figure], baseline, is_paired=True).verdict == "regressed"
        unpaired += judge(LIMITS, [figure], baseline).verdict == "regressed"
    return paired / seeds, unpaired / seeds


def _answers(generator: np.random.Generator, case: Case) -> tuple[Numbers, Numbers]:
    """1 for each right row, of the run before and of this one."""
    before = generator.random(case.rows) < RIGHT
    now = np.where(generator.random(case.rows) < case.noise, generator.random(case.rows) < RIGHT, before)
    return before.astype(float), (now & (generator.random(case.rows) >= case.drop / RIGHT)).astype(float)


def _sums(answers: Numbers) -> RowSums:
    return RowSums(("rows", "total"), np.column_stack([np.ones(len(answers)), answers]), answers)


def _figure(answers: Numbers) -> RunFigure:
    low, high = share_interval({"rows": len(answers), "total": int(answers.sum())}) or (None, None)
    return RunFigure(task="judge", name="exact_match", value=float(answers.mean()), low=low, high=high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--equal", type=int, default=2000, help="seeds of each case without a drop")
    parser.add_argument("--worse", type=int, default=300, help="seeds of each case with a drop")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "# Regressions found by a Schedule",
        "",
        f"`{f'python benchmarks/schedule_regressions.py {shlex.join(sys.argv[1:])}'.strip()}`, {date.today()},",
        f"Python {platform.python_version()}, {os.cpu_count()} cores.",
        "",
        f"A model is right in {RIGHT:.0%} of the rows. The next run answers some rows anew, and is worse by a known drop in points. Shares",
        f"of pairs of runs that are found to have regressed, with `worseBy: 0%` and {DRAWS} draws. Without a drop, each is a false alarm.",
        "",
        "| rows | drop | rows answered anew | pairs of runs | found over the same rows | found as of other rows |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for seeds, cases in ((asked.equal, EQUAL), (asked.worse, WORSE)):
        for case in cases:
            paired, unpaired = shares_found(case, seeds)
            lines.append(f"| {case.rows:,} | {case.drop:.0%} | {case.noise:.0%} | {seeds:,} | {paired:.2%} | {unpaired:.2%} |")
            print(lines[-1], flush=True)
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
