"""Simulations as one self-contained HTML page: figures, queue and utilisation over time, teams."""

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
class _Chart:
    """`legend`: name and CSS class of each line, where there are several."""

    title: str
    drawing: Markup
    legend: list[tuple[str, str]]


@dataclass(frozen=True)
class _View:
    policy: str
    figures: list[str]
    charts: list[_Chart]
    teams: list[tuple[str, list[str]]]


def render(trace: str, facts: Sequence[tuple[str, str]], runs: Sequence[tuple[Run, Results]]) -> str:
    """The page as HTML. All texts from files are escaped. `facts`: name and value of each setting that all runs share."""
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


def charts(run: Run) -> list[_Chart]:
    """Charts of a run over its days: queue and utilisation."""
    samples = run.series.samples(run.total_gpus)
    name = run.scenario.settings.name
    queue = [
        Line("jobs that wait", _over_days(samples, samples.queued_jobs.tolist()), "c1"),
        Line("GPUs that they ask for", _over_days(samples, samples.queued_gpus.tolist()), "c2"),
    ]
    busy = [Line("GPUs in use, %", _over_days(samples, (100 * samples.utilisation).tolist()))]
    return [
        _Chart("Queue", line_chart(queue, title=f"{name}: queue", from_zero=True, over="day"), [(line.name, line.style) for line in queue]),
        _Chart("GPUs in use, %", line_chart(busy, title=f"{name}: GPUs in use", from_zero=True, over="day"), []),
    ]


def _over_days(samples: Samples, values: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip((samples.until_s / _DAY_S).tolist(), values, strict=True))


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
