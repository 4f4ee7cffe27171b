"""`tuneyard usage`: GPU-hours and cost by team and kind of GPU, or by month, user and more where the hub keeps history."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tuneyard.api import TuneyardError
from tuneyard.api.moments import moment_of
from tuneyard.cli.history.source import since_of
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cluster import Hub, NotAllowed, UsageReport, Used, open_hub, usage_report, used_of
from tuneyard.cluster.errors import NotInstalled
from tuneyard.cluster.history_api import GROUPS, HistoryQuery, plain

_TEAMS = ("team", "sku", "jobs", "gpus_now", "gpu_hours", "cost", "endpoint_cost")
_SKUS = ("sku", "gpus", "gpu_hours", "cost", "idle")
_JOBS = ("team", "job", "sku", "gpus_now", "gpu_hours", "cost", "endpoint_cost")
_SUMS = ("gpu_hours", "cost", "endpoint_cost")
Table = tuple[tuple[str, ...], list[dict[str, Any]]]


def usage(
    team: Annotated[str | None, typer.Option(metavar="NAME", help="show this team alone, job by job")] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="how far back: 12h, 30d, or a date such as 2026-11-01")] = "7d",
    by: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=f"sums of the hub's history by one or more of {', '.join(GROUPS)}, such as month,user"),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="the history of this machine instead of the hub; by default by team and SKU")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show GPU-hours and cost per team, per kind of GPU with its idle share, and per job with --team.

    A hub with run history counts all jobs. One without counts the JobSpecs that it has: those that were removed are missing here, and are
    in the month's total of a team, which `kubectl get team NAME -o yaml` shows.

    `endpoint_cost` is what endpoints have charged for score tasks that have ended, by the price in their JobSpecs.

    Example: tuneyard usage --by month,team --since 2026-01-01
    """
    until = datetime.now(UTC)
    begins = since_of(since, until) or until
    if local:
        _print_sums(_local_sums(by, team, begins, until), output)
        return
    hub = open_hub(context=context, kubeconfig=kubeconfig)
    if by is not None:
        _sums(hub, HistoryQuery.parse([("by", by), *([("team", team)] if team else [])]), begins, output)
        return
    past, lack = _past(hub, HistoryQuery(since=begins, until=until, by=("team", "job", "sku")))
    report = usage_report(hub.snapshot(), begins, until, team, past)
    notes = [note for note in (report.partial, lack) if note]
    if output is Format.JSON:
        print_json(facts(report) | {"note": "; ".join(notes)})
        return
    used: Table = (_JOBS, [asdict(each) for each in report.jobs]) if team else (_TEAMS, report.teams())
    idle: Table = (_SKUS, [asdict(sku) | {"idle": f"{sku.idle:.0%}" if sku.idle is not None else None} for sku in report.skus])
    for columns, rows in (used, idle):
        if rows:
            print_table(columns, rows)
        else:
            typer.echo(f"no GPU was used{f' by team {team}' if team else ''} since {since}")
        typer.echo()
    for note in notes:
        typer.echo(f"note: {note}")


def _sums(hub: Hub, query: HistoryQuery, since: datetime, output: Format) -> None:
    """Sums of history alone. Raises NotInstalled where the hub has none."""
    asked = HistoryQuery(by=query.by, team=query.team, since=since)
    note = ""
    try:
        found = hub.past.usage("", asked)
    except NotAllowed:
        found = hub.past.usage(hub.address.namespace, asked)
        note = _only(hub)
    _print_sums(found | {"by": list(query.by), "note": note}, output)


def _local_sums(by: str | None, team: str | None, since: datetime, until: datetime) -> dict[str, Any]:
    """Sums of this machine's history. Raises BadInput for an unknown name in `by`."""
    from tuneyard.tracking.history import History
    from tuneyard.tracking.past import JobFilter

    groups: Any = HistoryQuery.parse([("by", by or "team,sku")]).by
    history = History.open()
    try:
        rows = history.usage(since, until, groups, JobFilter(hub="", team=team))
    finally:
        history.close()
    return {"since": plain(since), "until": plain(until), "by": list(groups), "rows": rows, "note": ""}


def _print_sums(found: dict[str, Any], output: Format) -> None:
    if output is Format.JSON:
        print_json({name: found[name] for name in ("since", "until", "by", "rows", "note")})
        return
    if found["rows"]:
        print_table([*sorted(found["by"], key=lambda name: name != "month"), "jobs", *_SUMS], found["rows"])
    else:
        typer.echo(f"no GPU and no endpoint was used since {moment_of(found['since']):%Y-%m-%d %H:%M} UTC")
    if found["note"]:
        typer.echo(f"note: {found['note']}")


def _past(hub: Hub, query: HistoryQuery) -> tuple[list[Used] | None, str]:
    """Usage by the hub's history, and what it lacks in words. None where the hub has no history, or does not show it."""
    lack = ""
    try:
        try:
            rows = hub.past.usage("", query)["rows"]
        except NotAllowed:
            rows, lack = hub.past.usage(hub.address.namespace, query)["rows"], _only(hub)
    except NotInstalled:
        return None, ""
    except TuneyardError as error:
        return None, f"removed JobSpecs are not counted: {error.cause}"
    return [used_of(row) for row in rows], lack


def _only(hub: Hub) -> str:
    return f"only the history of namespace {hub.address.namespace} is counted: you may not list usages of others"


def facts(report: UsageReport) -> dict[str, Any]:
    """The same for programs."""
    return {
        "since": report.since.isoformat(),
        "until": report.until.isoformat(),
        "teams": report.teams(),
        "jobs": [asdict(used) for used in report.jobs],
        "skus": [asdict(sku) for sku in report.skus],
        "source": "history" if report.has_past else "jobspecs",
        "note": report.partial,
    }
