"""`tuneyard simulate`: a trace of jobs under one or more policies, with the hub's scheduler."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import did_you_mean
from tuneyard.api.quantities import parse_duration_s
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cli.simulate.clusters import read_clusters, unmatched_quotas
from tuneyard.cli.simulate.progress import open_progress
from tuneyard.cli.simulate.text import course_lines, policy_lines, team_lines
from tuneyard.cli.simulate.trace import read_trace
from tuneyard.federation import POLICIES, Member, simulation
from tuneyard.federation.simulation import Checkpoints, Failures, Results, Run, Scenario, TraceJob, results_of, starved

_DAY_S = 86400.0
_REFERENCE = "best-effort-fifo"
_MOST_REFUSED_SHOWN = 5


def simulate(
    trace: Annotated[Path, typer.Option(metavar="CSV", help="jobs, plain or .gz; docs/simulate.md lists the columns")],
    clusters: Annotated[Path, typer.Option(metavar="YAML", help="Cluster and Team manifests, or a short list of both")],
    policy: Annotated[list[str], typer.Option(metavar="NAME", help=f"one of {', '.join(POLICIES)}; several are compared")] = ["tuneyard"],  # noqa: B006 -- typer's way; never changed
    noise: Annotated[
        float, typer.Option(min=0, metavar="SIGMA", help="sigma of the log-normal error of predicted durations; 0: none")
    ] = 0.7,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="seed of errors and failures, which are the same under every policy")] = 1,
    node_failure_days: Annotated[
        float | None, typer.Option(min=0.001, metavar="DAYS", help="mean time between failures of a node; default: never")
    ] = None,
    node_down_minutes: Annotated[float, typer.Option(min=0, metavar="MINUTES", help="time until a failed node is back")] = 60,
    member_failure_days: Annotated[
        float | None, typer.Option(min=0.001, metavar="DAYS", help="mean time between failures of a cluster; default: never")
    ] = None,
    member_down_hours: Annotated[float, typer.Option(min=0, metavar="HOURS", help="time until a failed cluster is back")] = 4,
    checkpoints: Annotated[bool, typer.Option(help="without checkpoints, interrupted jobs start from scratch")] = True,
    checkpoint_minutes: Annotated[float, typer.Option(min=0.1, metavar="MINUTES", help="time from one checkpoint to the next")] = 30,
    restart_seconds: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="time of a start after an interruption; GPUs are held meanwhile")
    ] = 60,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="end of the simulation after the first submission, such as 30d")] = None,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="write queue, utilisation and teams as an HTML page")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replay a trace of jobs on clusters, under one policy or several.

    Example: tuneyard simulate --trace jobs.csv --clusters clusters.yaml --policy tuneyard --policy best-effort-fifo --chart out.html
    """
    for name in policy:
        if name not in POLICIES:
            raise BadInput(f"--policy {name}: no such policy{did_you_mean(name, POLICIES)}", f"use one of {', '.join(POLICIES)}")
    numbers = (noise, node_failure_days, node_down_minutes, member_failure_days, member_down_hours, checkpoint_minutes, restart_seconds)
    if not all(math.isfinite(number) for number in numbers if number is not None):
        raise BadInput("one of the options is not a finite number", "leave an option out for its default")
    if chart is not None and not chart.parent.is_dir():
        raise BadInput(f"--chart {chart}: there is no folder {chart.parent}", "give a file in a folder that exists")
    jobs = read_trace(trace)
    members, teams = read_clusters(clusters)
    for note in unmatched_quotas(members, teams):
        typer.echo(f"note: {note}", err=True)
    scenarios = [
        Scenario(
            policy=name,
            noise=noise,
            checkpoints=Checkpoints(every_s=checkpoint_minutes * 60 if checkpoints else None, restart_s=restart_seconds),
            failures=Failures(
                node_every_s=node_failure_days * _DAY_S if node_failure_days else None,
                node_away_s=node_down_minutes * 60,
                member_every_s=member_failure_days * _DAY_S if member_failure_days else None,
                member_away_s=member_down_hours * 3600,
            ),
            teams=teams,
            until_s=_until_s(until),
        )
        for name in dict.fromkeys(policy)
    ]
    runs = [_simulated(jobs, members, scenario, seed) for scenario in scenarios]
    if chart is not None:
        _write_page(chart, trace, jobs, members, seed, runs)
    if output is Format.JSON:
        answers = [results.to_dict() for _, results in runs]
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    for line in _lines(runs):
        typer.echo(line)
    if chart is not None:
        typer.echo(f"charts: {chart}")


def _until_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(parse_duration_s(text))
    except ValueError as error:
        raise BadInput(f"--until {error}", "give the time from the first submission on, such as 30d") from None


def _simulated(jobs: Sequence[TraceJob], members: Sequence[Member], scenario: Scenario, seed: int) -> tuple[Run, Results]:
    with open_progress(scenario.settings.name, len(jobs)) as progress:
        run = simulation.simulate(jobs, members, scenario, np.random.default_rng(seed), clock=time.perf_counter, progress=progress)
    return run, results_of(run)


def _lines(runs: Sequence[tuple[Run, Results]]) -> list[str]:
    found = [results for _, results in runs]
    lines = policy_lines(found)
    for run, results in runs:
        lines += ["", *([results.policy] if len(runs) > 1 else []), *course_lines(run)]
    if len(runs) == 1:
        lines += ["", *team_lines(found[0])]
    lines += _starved_lines(found)
    return lines + _refused_lines(runs[0][0])


def _starved_lines(found: Sequence[Results]) -> list[str]:
    """Teams with a job that waited longer than any job under `_REFERENCE`, where this policy is one of the compared ones."""
    reference = next((results for results in found if results.policy == _REFERENCE), None)
    if reference is None or len(found) == 1:
        return []
    lines = [""]
    for results in found:
        if results is not reference:
            teams = ", ".join(starved(results, reference)) or "none"
            lines.append(f"{results.policy}: teams with a job that waited longer than any under {_REFERENCE}: {teams}")
    return lines


def _refused_lines(run: Run) -> list[str]:
    refused = [life for life in run.lives if life.refused]
    lines = [f"job {life.job.name} can never run: {life.refused}" for life in refused[:_MOST_REFUSED_SHOWN]]
    if len(refused) > _MOST_REFUSED_SHOWN:
        lines.append(f"and {len(refused) - _MOST_REFUSED_SHOWN:,} more")
    return ["", *lines] if lines else []


def _write_page(
    chart: Path, trace: Path, jobs: Sequence[TraceJob], members: Sequence[Member], seed: int, runs: Sequence[tuple[Run, Results]]
) -> None:
    from tuneyard.cli.simulate.page import render

    scenario = runs[0][0].scenario
    facts = [
        ("jobs", f"{len(jobs):,}"),
        ("teams", f"{len({job.team for job in jobs}):,}"),
        ("GPUs", f"{runs[0][0].total_gpus:,} in {len(members)} clusters"),
        ("noise", f"{scenario.noise:g}"),
        ("seed", str(seed)),
        ("checkpoints", f"every {scenario.checkpoints.every_s / 60:g} min" if scenario.checkpoints.every_s else "none"),
    ]
    for what, every_s in (("node fails every", scenario.failures.node_every_s), ("cluster fails every", scenario.failures.member_every_s)):
        if every_s:
            facts.append((what, f"{every_s / _DAY_S:g} d"))
    try:
        chart.write_text(render(trace.name, facts, runs), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--chart {chart}: cannot be written: {error.strerror}", "give a file in a folder that exists") from None
