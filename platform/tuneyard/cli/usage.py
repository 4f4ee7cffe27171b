"""`tuneyard usage`: GPU-hours and cost by team and kind of GPU."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from tuneyard.api import BadInput
from tuneyard.api.quantities import Duration
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cluster import UsageReport, open_hub, usage_report

_TEAMS = ("team", "sku", "jobs", "gpus_now", "gpu_hours", "cost")
_SKUS = ("sku", "gpus", "gpu_hours", "cost", "idle")
_JOBS = ("team", "job", "sku", "gpus_now", "gpu_hours", "cost")
Table = tuple[tuple[str, ...], list[dict[str, Any]]]


def usage(
    team: Annotated[str | None, typer.Option(metavar="NAME", help="show this team alone, job by job")] = None,
    since: Annotated[str, typer.Option(metavar="DURATION", help="how far back, such as 12h or 30d")] = "7d",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show GPU-hours and cost per team, per kind of GPU with its idle share, and per job with --team.

    The JobSpecs of the hub are counted. JobSpecs that were removed are missing here; they are in the month's total of a team, which
    `kubectl get team NAME -o yaml` shows.

    Example: tuneyard usage --team maps --since 30d
    """
    try:
        seconds = TypeAdapter(Duration).validate_python(since)
    except ValidationError as error:
        raise BadInput(f"--since {since}: {error.errors()[0]['msg']}", "write it as 12h, 7d or 30d") from None
    until = datetime.now(UTC)
    report = usage_report(open_hub(context=context, kubeconfig=kubeconfig).snapshot(), until - timedelta(seconds=seconds), until, team)
    if output is Format.JSON:
        print_json(facts(report))
        return
    used: Table = (_JOBS, [asdict(each) for each in report.jobs]) if team else (_TEAMS, report.teams())
    idle: Table = (_SKUS, [asdict(sku) | {"idle": f"{sku.idle:.0%}" if sku.idle is not None else None} for sku in report.skus])
    for columns, rows in (used, idle):
        if rows:
            print_table(columns, rows)
        else:
            typer.echo(f"no GPU was used{f' by team {team}' if team else ''} in the last {since}")
        typer.echo()
    if report.partial:
        typer.echo(f"note: {report.partial}")


def facts(report: UsageReport) -> dict[str, Any]:
    """The same for programs."""
    return {
        "since": report.since.isoformat(),
        "until": report.until.isoformat(),
        "teams": report.teams(),
        "jobs": [asdict(used) for used in report.jobs],
        "skus": [asdict(sku) for sku in report.skus],
        "note": report.partial,
    }
