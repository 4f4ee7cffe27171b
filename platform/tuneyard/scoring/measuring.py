"""What the driver of a score task decides about its metrics before an engine starts: the tokenizer of BLEU, and the column of choices."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, Bleu, ScoreTask
from tuneyard.data import ScoreRow
from tuneyard.metrics import METRICS
from tuneyard.metrics.bleu import missing_for, tokenizer_for
from tuneyard.scoring.request import ScoreRequest


def with_tokenizer(request: ScoreRequest, first: Sequence[ScoreRow]) -> tuple[ScoreRequest, str]:
    """The request with the tokenizer of BLEU, chosen by the references of the first rows, and a sentence for people.

    Raises BadInput where this machine lacks what the tokenizer needs.
    """
    task = request.task
    if "bleu" not in task.metrics:
        return request, ""
    chosen, why = task.bleu.tokenize, ""
    if chosen == "auto":
        chosen, why = tokenizer_for(reference for row in first for reference in row["references"])
    if lacks := missing_for(chosen, Path.home()):
        raise BadInput(f"bleu.tokenize {chosen} needs {lacks}", "install it where engines run, or choose another tokenizer")
    return replace(request, task=task.model_copy(update={"bleu": Bleu(tokenize=chosen)})), why


def check_choices(task: ScoreTask, first: Sequence[ScoreRow]) -> None:
    """Raises BadInput where the first rows lack the column of choices."""
    column = task.choices.column if task.choices is not None else None
    found = list(dict.fromkeys(name for row in first for name in row["kept"]))
    if column is None or not found or column in found:
        return
    near = difflib.get_close_matches(column, found, n=1)
    raise BadInput(
        f"{task.data.source}: no column {column} (choices.column); columns found: {', '.join(found)}",
        f"did you mean {near[0]}?" if near else "set choices.column to one of them",
    )


def answer_settings(task: ScoreTask) -> dict[str, Any]:
    """The settings of a task that change its answers and the values of its metrics, by their names in the JobSpec. Those that are not given
    are left out, as plans of earlier versions do."""
    read = {name for metric in task.metrics for name in METRICS[metric].settings}
    given = task.model_dump(mode="json", by_alias=True, include={"answer", "ignore", "bleu", "numeric", "pass_at", "choices"})
    settings = {name: value for name, value in given.items() if value and (name in read or name in ("answer", "choices"))}
    if "ignore" in settings:
        settings["ignore"] = sorted(settings["ignore"])
    return settings


def bleu_details(task: ScoreTask, why: str) -> dict[str, Any]:
    """The tokenizer of BLEU for metrics.json, and why it is this one; empty without BLEU."""
    return {"bleu": {"tokenize": task.bleu.tokenize, **({"why": why} if why else {})}} if "bleu" in task.metrics else {}
