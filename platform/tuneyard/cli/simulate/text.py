"""Simulations on a terminal: a row per policy, its queue and utilisation as a line of blocks, and the teams of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuneyard.cli.output import table_lines
from tuneyard.federation.simulation import Results, Run, TeamResults
from tuneyard.tracking.formats import duration

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 72
_HOUR_S = 3600.0


def policy_lines(found: Sequence[Results]) -> list[str]:
    """The table of all policies, without columns that are empty for all of them."""
    rows = [_policy_row(each) for each in found]
    columns = [column for column in rows[0] if column not in ("unfinished", "refused") or any(row[column] for row in rows)]
    return table_lines(columns, rows)


def team_lines(found: Results) -> list[str]:
    return table_lines(list(_team_row(found.teams[0])), [_team_row(team) for team in found.teams]) if found.teams else []


def course_lines(run: Run) -> list[str]:
    """Queue and utilisation from the first submission to the end, each step an average."""
    samples = run.series.samples(run.total_gpus, _WIDTH)
    if not len(samples.until_s):
        return []
    queue, busy = samples.queued_jobs.tolist(), samples.utilisation.tolist()
    return [
        f"jobs waiting  {spark(queue)}  at most {max(queue):,.0f}",
        f"GPUs in use   {spark(busy, most=1.0)}  over {duration(samples.until_s[-1])}",
    ]


def spark(values: Sequence[float], most: float | None = None) -> str:
    """A block of eight heights for each value; only 0 is blank. `most`: the value of a full block; default: the largest."""
    top = most if most is not None else max(values, default=0.0)
    if top <= 0:
        return " " * len(values)
    return "".join(_BLOCKS[min(8, max(1, round(8 * value / top))) if value > 0 else 0] for value in values)


def _policy_row(found: Results) -> dict[str, Any]:
    return {
        "policy": found.policy,
        "jobs": found.jobs,
        "unfinished": found.unfinished,
        "refused": found.refused,
        "mean_jct_h": found.mean_jct_s / _HOUR_S,
        "p99_jct_h": found.p99_jct_s / _HOUR_S,
        "p50_wait_h": found.p50_wait_s / _HOUR_S,
        "p99_wait_h": found.p99_wait_s / _HOUR_S,
        "longest_wait_h": found.longest_wait_s / _HOUR_S,
        "gpu_utilisation": found.gpu_utilisation,
        "lost_gpu_hours": found.lost_gpu_hours,
        "preemptions": found.preemptions,
        "own_quota_longest_wait_h": found.own_quota_longest_wait_s / _HOUR_S,
        "fairness": found.fairness,
        "ms_per_cycle": 1000 * found.seconds_per_cycle,
    }


def _team_row(team: TeamResults) -> dict[str, Any]:
    return {
        "team": team.team,
        "jobs": team.jobs,
        "gpu_hours": team.gpu_hours,
        "mean_jct_h": team.mean_jct_s / _HOUR_S,
        "p99_wait_h": team.p99_wait_s / _HOUR_S,
        "longest_wait_h": team.longest_wait_s / _HOUR_S,
        "largest_slowdown": team.largest_slowdown,
        "speed": team.speed,
    }
