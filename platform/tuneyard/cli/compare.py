"""`tuneyard compare`: two or more models on the same rows, from the outputs of their score tasks."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.data.visible import visible
from tuneyard.storage import NotFound, open_store
from tuneyard.tracking.paired_rows import difference_text, interval_text, paired_views, rows_note, value_text, verdict
from tuneyard.tracking.pairwise import pairwise_words

_SHOWN = 100
"""Characters of a text on a terminal."""


def compare(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="folder or URI of a score task, such as runs/first/base")],
    others: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OTHER]...", help="the score tasks to compare with it; none: FIRST is a judge of two answers"),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare models row by row: wins, ties, losses, differences with intervals, and the rows that differ most.

    Example: tuneyard compare runs/first/base runs/first/tuned
    """
    from tuneyard.scoring.paired import compare as compare_outputs

    if not others:
        _print_pairs(first, output)
        return
    names = _names([first, *others])
    found = [compare_outputs(uri, first, names=(name, names[0])).to_dict() for uri, name in zip(others, names[1:], strict=True)]
    if output is Format.JSON:
        print_json(found)
        return
    for number, each in enumerate(found):
        if number:
            typer.echo()
        _print(each)


def _print_pairs(uri: str, output: Format) -> None:
    """The verdicts of a judge of two answers, whose output is a comparison itself."""
    try:
        result = json.loads(open_store(uri).get("metrics.json"))
        found, interval = result["details"]["pairwise"], result["intervals"].get("win_rate")
    except (NotFound, NotADirectoryError, ValueError, KeyError, TypeError):
        raise BadInput(f"{uri} is alone, and holds no verdicts of a judge of two answers", "name two score tasks to compare") from None
    if output is Format.JSON:
        print_json({"win_rate": result["metrics"]["win_rate"], "interval": interval, **found})
        return
    bounds = f" (95 %: {interval[0]:.4g} to {interval[1]:.4g})" if interval else ""
    typer.echo(f"win rate {result['metrics']['win_rate']:.4g}{bounds}")
    for title, value, note in pairwise_words(result):
        typer.echo(f"{title}: {value} ({note})")


def _names(uris: list[str]) -> list[str]:
    """The last names of the folders; with the folders before, as far as that is needed to tell them apart."""
    parts = [PurePosixPath(uri.rstrip("/").removesuffix("/parts")).parts for uri in uris]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    raise BadInput("the same output is named twice", "name the outputs of different score tasks")


def _print(comparison: dict[str, Any]) -> None:
    task, against = comparison["task"], comparison["against"]
    typer.echo(f"{task} against {against}: {rows_note(comparison)}")
    columns = ["metric", against, task, "difference", "95 % interval", "verdict", "won", "equal", "lost"]
    print_table(columns, [_row(comparison, figure) for figure in comparison["figures"]], right=columns[1:5])
    (view,) = paired_views([comparison])
    for what, rows in (("better", view.better_rows), ("worse", view.worse_rows)):
        for row in rows:
            typer.echo(f"\n{visible(task)} is {what} in {row.title}")
            texts = (
                ("prompt", row.prompt),
                ("reference", row.reference),
                (f"judged by {against}", row.judged_against),
                (against, row.against),
                (f"judged by {task}", row.judged),
                (task, row.output),
            )
            shown = [(name, text) for name, text in texts if text or name in (against, task)]
            width = max(len(name) for name, _ in shown)
            for name, text in shown:
                typer.echo(f"  {name:<{width}}  {_short(text)}")


def _row(comparison: dict[str, Any], figure: dict[str, Any]) -> dict[str, Any]:
    name = figure["figure"]
    return {
        "metric": name,
        comparison["against"]: value_text(name, figure["against"]),
        comparison["task"]: value_text(name, figure["value"]),
        "difference": difference_text(figure["difference"]),
        "95 % interval": interval_text(figure["interval"]),
        "verdict": verdict(figure),
        "won": figure["wins"],
        "equal": figure["ties"],
        "lost": figure["losses"],
    }


def _short(text: str) -> str:
    one_line = visible(" ".join(text.split()))
    return one_line if len(one_line) <= _SHOWN else f"{one_line[:_SHOWN]}…"
