"""`tuneyard history`: earlier runs, from the run history of this machine or of a hub."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption, NamespaceOption
from tuneyard.cli.output import Format, OutputOption, print_json, print_table

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look at earlier runs.")
HubOption = Annotated[bool, typer.Option("--hub", help="the history of the hub, instead of that of this machine")]
EverywhereOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="with --hub: jobs of all namespaces")]
SinceOption = Annotated[str | None, typer.Option(metavar="TIME", help="submitted since then: 12h, 30d, or a date such as 2026-11-01")]
TeamOption = Annotated[str | None, typer.Option(help="jobs of this team only")]
Row = dict[str, Any]


@app.callback()
def _group() -> None:
    """Look at earlier runs."""


class Export(StrEnum):
    JSON_LINES = "jsonl"
    CSV = "csv"


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, help="jobs to show, newest first")] = 20,
    team: TeamOption = None,
    user: Annotated[str | None, typer.Option(help="jobs that this user submitted")] = None,
    status: Annotated[str | None, typer.Option(metavar="STATE", help="in this state only: running, killed, succeeded, failed, …")] = None,
    name: Annotated[str | None, typer.Option(help="runs of this name only; `*` and `?` stand for other characters: 'nightly-*'")] = None,
    since: SinceOption = None,
    imported: Annotated[bool, typer.Option(help="runs of others, of `tuneyard history import`")] = False,
    hub: HubOption = False,
    everywhere: EverywhereOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs, the newest first.

    Example: tuneyard history list --hub --team maps --status failed --since 7d
    """
    from tuneyard.cli.history.source import since_of
    from tuneyard.cli.history.table import COLUMNS, row_of, says
    from tuneyard.cluster.history_api import HistoryQuery

    query = HistoryQuery(
        team=team or "",
        user=user or "",
        status=(status or "").lower(),
        name=name or "",
        origin="imported" if imported else "",
        since=since_of(since, datetime.now(UTC)),
    )
    with _source(hub, everywhere, namespace, context, kubeconfig) as source:
        jobs = list(source.jobs(query, limit))
    if output is Format.JSON:
        print_json(jobs)
    elif jobs:
        rows = [row_of(job) for job in jobs]
        print_table([column for column in COLUMNS if says(column, rows)], rows)
    else:
        chosen = any((team, user, status, name, since, imported))
        typer.echo("no job is like that" if chosen else "no jobs yet: start one with `tuneyard run FILE`")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of a job (its newest run), or the id of a run")],
    hub: HubOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one job: its attempts with placements, failures, usage and cost, and its scores.

    Example: tuneyard history show support-bot --hub -n maps
    """
    from tuneyard.cli.history.table import page_of

    with _source(hub, False, namespace, context, kubeconfig) as source:
        job = source.job(name)
    print_json(job) if output is Format.JSON else typer.echo(page_of(job))


@app.command("compare")
def compare(
    one: Annotated[str, typer.Argument(metavar="A", help="name of a job (its newest run), or the id of a run")],
    other: Annotated[str, typer.Argument(metavar="B", help="the same of another")],
    hub: HubOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare two runs: state, time, cost, figures of each task, and what differs in their specs.

    Example: tuneyard history compare support-bot support-bot-r32
    """
    from tuneyard.cli.history.comparison import compared

    with _source(hub, False, namespace, context, kubeconfig) as source:
        found = compared(source.job(one), source.job(other))
    if output is Format.JSON:
        print_json(found.facts())
        return
    print_table(
        [*("figure", "A", "B", "difference"), *(["better"] if any(each.better for each in found.figures) else [])],
        found.rows(),
        right=("A", "B", "difference"),
    )
    for line in (*found.notes, *found.differences):
        typer.echo(line)


@app.command("export")
def export(
    form: Annotated[
        Export, typer.Option("--format", help="jsonl: a job with all its attempts per line; csv: an attempt per line")
    ] = Export.JSON_LINES,
    team: TeamOption = None,
    since: SinceOption = None,
    hub: HubOption = False,
    everywhere: EverywhereOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Write history to stdout, for spreadsheets and programs.

    Example: tuneyard history export --format csv --since 30d
    """
    from tuneyard.cli.history.source import since_of
    from tuneyard.cli.history.table import ATTEMPT_COLUMNS, attempt_rows
    from tuneyard.cluster.history_api import HistoryQuery

    query = HistoryQuery(team=team or "", since=since_of(since, datetime.now(UTC)))
    table = csv.DictWriter(sys.stdout, ATTEMPT_COLUMNS, extrasaction="ignore", lineterminator="\n")
    if form is Export.CSV:
        table.writeheader()
    with _source(hub, everywhere, namespace, context, kubeconfig) as source:
        for job in source.jobs(query, None):
            whole = source.whole(job)
            if form is Export.CSV:
                table.writerows(attempt_rows(whole))
            else:
                sys.stdout.write(json.dumps(whole) + "\n")


@app.command("import")
def import_runs(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[CSV]", help="published runs, with the columns that docs/tuning.md lists; may be packed by gzip"),
    ] = None,
    since: SinceOption = None,
    hub: Annotated[bool, typer.Option("--hub", help="training runs of a hub's history, instead of a file")] = False,
    everywhere: EverywhereOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Add published runs, or training runs of a hub, to the history of this machine, from which `plan` and `tune` learn. Importing twice
    adds nothing.

    Example: tuneyard history import --hub -n maps --since 90d
    """
    from tuneyard.tracking.history import History

    if (file is None) != hub:
        raise BadInput("runs come from a CSV file or from a hub", "give one of both: FILE, or --hub")
    if not hub and (everywhere or namespace or context or kubeconfig or since):
        raise BadInput("-A, -n, --since, --context and --kubeconfig choose among the runs of a hub", "add --hub, without a file")
    if file is not None:
        runs = _published(file)
    else:
        from tuneyard.cli.history.source import since_of, training_runs
        from tuneyard.cluster import open_hub

        found = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
        runs = training_runs(found, everywhere, since_of(since, datetime.now(UTC)))
    history = History.open()
    try:
        new = history.add_training_runs(runs, datetime.now(UTC))
    finally:
        history.close()
    twice = "were known already" if hub else "were known already or are twice in the file"
    typer.echo(f"{new:,} runs are new, {len(runs) - new:,} {twice}")
    for source, count in Counter(run["source"] for run in runs).items() if hub else ():
        typer.echo(f"  {count:,} of {source}")


def _published(file: Path) -> list[Row]:
    """Runs of a CSV file. Raises BadInput."""
    import pandas as pd

    from tuneyard.tuning import published_runs

    try:
        rows = pd.read_csv(file, low_memory=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read as CSV: {error}", "give a CSV file with a header") from error
    return published_runs(rows)


@contextmanager
def _source(hub: bool, everywhere: bool, namespace: str | None, context: str | None, kubeconfig: Path | None) -> Iterator[Any]:
    """The history that the options name. Raises BadInput for options of a hub without --hub."""
    from tuneyard.cli.history.source import HubHistory, LocalHistory

    if not hub and (everywhere or namespace or context or kubeconfig):
        raise BadInput("-A, -n, --context and --kubeconfig choose among the jobs of a hub", "add --hub")
    if hub:
        from tuneyard.cluster import open_hub

        source: Any = HubHistory(open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig), everywhere)
    else:
        source = LocalHistory()
    try:
        yield source
    finally:
        source.close()
