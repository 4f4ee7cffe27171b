"""`tuneyard report`: the figures of a run, from its report.json."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.metrics import FIGURES
from tuneyard.runtime.liveness import KILLED, is_orphaned, say_orphaned
from tuneyard.storage import NotFound, open_store
from tuneyard.tracking import remarks_of
from tuneyard.tracking.formats import percent, rate
from tuneyard.tracking.useless import qualified, words_of

_RATES = ("tokens_per_s", "output_tokens_per_s", "rows_per_s")
_COLUMNS = ["task", "status", "steps", "last_loss", *_RATES, "mfu", "peak_memory_gb", "rows", "errors", "wall_s"]


def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="output folder or URI of the job")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the report of a run.

    Example: tuneyard report runs/first
    """
    content = _read(folder)
    if output is Format.JSON:
        print_json(content)
        return
    gone = f": {say_orphaned(folder)}" if content["status"] == KILLED else ""
    typer.echo(f"{content['job']}: {content['status']}{gone}")
    rows = [_row(name, task) for name, task in content["tasks"].items()]
    print_table([column for column in _COLUMNS if any(row.get(column) is not None for row in rows)], rows, right=(*_RATES, "mfu"))
    for row in rows:
        for name, value in row["metrics"].items():
            task = content["tasks"][row["task"]]
            typer.echo(f"{row['task']}: {name} {_text(name, value)}{_interval(name, task)}{_useless(name, task)}")
    for name, task in content["tasks"].items():
        for sentence in remarks_of(task):
            typer.echo(f"{name}: {sentence}")
    typer.echo(f"charts: {folder.rstrip('/')}/report.html")


def _text(name: str, value: float) -> str:
    return FIGURES[name].text(value) if name in FIGURES else f"{value:.4g}"


def _interval(name: str, task: dict[str, Any]) -> str:
    bounds = (task.get("intervals") or {}).get(name)
    return f" (95 %: {_text(name, bounds[0])} to {_text(name, bounds[1])})" if bounds else ""


def _useless(figure: str, task: dict[str, Any]) -> str:
    words = words_of(task) if qualified(figure) else ""
    return f"; outputs: {words}" if words else ""


def _read(folder: str) -> dict[str, Any]:
    folder = folder.removesuffix("report.json")
    try:
        content = json.loads(open_store(folder or ".").get("report.json"))
    except NotFound:
        raise BadInput(f"{folder or '.'} holds no report.json", "give the folder that `tuneyard run --out` wrote") from None
    except ValueError as error:
        raise BadInput(f"{folder}/report.json is damaged: {error}", "run the job again with --resume: finished tasks are kept") from error
    if not isinstance(content, dict) or not {"job", "status", "tasks"} <= set(content):
        raise BadInput(f"{folder}/report.json is not a report of Tuneyard", "give the folder that `tuneyard run --out` wrote")
    for each in (content, *content["tasks"].values()) if is_orphaned(content["status"], folder or ".") else ():
        each["status"] = KILLED if each.get("status") == "running" else each.get("status")
    return content


def _row(name: str, task: dict[str, Any]) -> dict[str, Any]:
    losses = task.get("losses") or [None]
    peak = task.get("peak_memory_gb")
    rows_per_s = (task.get("details") or {}).get("rows_per_s")  # of programs and rankers, which have no tokens
    rates = {name: task.get(name) for name in _RATES} | ({} if rows_per_s is None else {"rows_per_s": rows_per_s, "tokens_per_s": None})
    return {
        **{column: task.get(column) for column in _COLUMNS},
        **{name: None if value is None else rate(value) for name, value in rates.items()},
        "mfu": None if task.get("mfu") is None else percent(task["mfu"]),
        "task": name,
        "last_loss": losses[-1],
        "peak_memory_gb": max(peak) if isinstance(peak, list) and peak else peak,
        "metrics": {key: value for key, value in (task.get("metrics") or {}).items() if isinstance(value, (int, float))},
    }
