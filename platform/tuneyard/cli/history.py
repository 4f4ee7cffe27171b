"""`tuneyard history`: earlier runs, from the run history."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.tracking.history import History, PastJob

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look at earlier runs.")


@app.callback()
def _group() -> None:
    """Look at earlier runs."""


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, help="jobs to show, newest first")] = 20,
    team: Annotated[str | None, typer.Option(help="jobs of this team only")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs, the newest first.

    Example: tuneyard history list --limit 5 -o json
    """
    history = History.open()
    try:
        jobs = history.jobs(limit, team=team)
    finally:
        history.close()
    if output is Format.JSON:
        print_json([asdict(job) | {"started_at": _iso(job.started_at), "ended_at": _iso(job.ended_at)} for job in jobs])
    elif jobs:
        print_table(["name", "team", "status", "started", "took", "attempts", "gpu_hours", "output"], [_row(job) for job in jobs])
    else:
        typer.echo("no jobs yet: start one with `tuneyard run FILE`")


@app.command("import")
def import_runs(
    file: Annotated[
        Path, typer.Argument(metavar="CSV", help="published runs, with the columns that docs/tuning.md lists; may be packed by gzip")
    ],
) -> None:
    """Add published runs to the history, from which the tuner learns. Importing a file twice adds nothing.

    Example: tuneyard history import runs.csv
    """
    import pandas as pd

    from tuneyard.tuning import published_runs

    try:
        rows = pd.read_csv(file, low_memory=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read as CSV: {error}", "give a CSV file with a header") from error
    runs = published_runs(rows)
    history = History.open()
    try:
        new = history.add_training_runs(runs, datetime.now(UTC))
    finally:
        history.close()
    typer.echo(f"{new:,} runs are new, {len(runs) - new:,} were known already or are twice in the file")


def _row(job: PastJob) -> dict[str, object]:
    took = str(job.ended_at - job.started_at).partition(".")[0] if job.ended_at else None
    return asdict(job) | {"started": f"{job.started_at:%Y-%m-%d %H:%M}", "took": took}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
