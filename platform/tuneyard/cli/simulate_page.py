"""Simulations as one HTML page that needs nothing else: figures, queue and utilisation over time, teams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tuneyard.federation.simulation import Results, Run, Samples, TeamResults
from tuneyard.tracking.charts import Line, line_chart
from tuneyard.tracking.formats import duration, number, percent

_COLUMNS = (
    "mean completion",
    "p99 completion",
    "p50 wait",
    "p99 wait",
    "longest wait",
    "utilisation",
    "lost GPU-hours",
    "preemptions",
    "fairness",
)
_TEAM_COLUMNS = ("jobs", "GPU-hours", "mean completion", "p99 wait", "longest wait", "largest slowdown", "speed")
_DAY_S = 86400.0


@dataclass(frozen=True)
class _View:
    policy: str
    figures: list[str]
    charts: list[tuple[str, Markup]]
    teams: list[tuple[str, list[str]]]


def render(trace: str, facts: Sequence[tuple[str, str]], runs: Sequence[tuple[Run, Results]]) -> str:
    """The page as HTML. Everything that came from files is escaped. `facts`: what all runs have in common."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("tuneyard.cli"), PackageLoader("tuneyard.tracking")]),  # the report's look is ours too
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    views = [_View(results.policy, _figures(results), charts(run), _teams(results)) for run, results in runs]
    return environment.get_template("simulation.html").render(
        trace=trace, facts=facts, columns=_COLUMNS, team_columns=_TEAM_COLUMNS, views=views
    )


def charts(run: Run) -> list[tuple[str, Markup]]:
    """Title and drawing of what a run looks like over its days."""
    samples = run.series.samples(run.total_gpus)
    name = run.scenario.settings.name
    return [
        ("Jobs that wait", _over_days(samples, samples.queued_jobs.tolist(), f"{name}: jobs that wait")),
        ("GPUs that they ask for", _over_days(samples, samples.queued_gpus.tolist(), f"{name}: GPUs asked for by jobs that wait")),
        ("GPUs in use, %", _over_days(samples, (100 * samples.utilisation).tolist(), f"{name}: share of GPUs in use")),
    ]


def _over_days(samples: Samples, values: Sequence[float], title: str) -> Markup:
    points = list(zip((samples.until_s / _DAY_S).tolist(), values, strict=True))
    return line_chart([Line(title, points)], title=title, from_zero=True, over="day")


def _figures(found: Results) -> list[str]:
    return [
        duration(found.mean_jct_s),
        duration(found.p99_jct_s),
        duration(found.p50_wait_s),
        duration(found.p99_wait_s),
        duration(found.longest_wait_s),
        percent(found.gpu_utilisation),
        number(found.lost_gpu_hours),
        f"{found.preemptions:,}",
        f"{found.fairness:.3f}",
    ]


def _teams(found: Results) -> list[tuple[str, list[str]]]:
    return [(team.team, _team(team)) for team in found.teams]


def _team(team: TeamResults) -> list[str]:
    return [
        f"{team.jobs:,}",
        number(team.gpu_hours),
        duration(team.mean_jct_s),
        duration(team.p99_wait_s),
        duration(team.longest_wait_s),
        number(team.largest_slowdown),
        f"{team.speed:.3f}",
    ]
