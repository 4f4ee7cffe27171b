"""Compares finished score tasks on the same rows: with others of the job, for its report, and with the last good run of its Schedule.

The first such task of the file is the one that the others are compared with. A comparison is made when the second of a pair ends, wherever
that is, and kept in `<task>/against/<first>.json`. On a hub both tasks may end at once: then both make the same comparison.

A run of a Schedule is compared with the last good run, whose output its JobSpec names, and keeps that in `<task>/against/run.<RUN>.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tuneyard.api import BadInput, JobSpec, TuneyardError
from tuneyard.api.secrets import redact
from tuneyard.runtime.output import JobOutput
from tuneyard.schedules import NOT_COMPARED, LastGood
from tuneyard.storage import NotFound, Store, join
from tuneyard.tracking import Emit, Report, Stage, Warned, comparable
from tuneyard.tracking.progress.words import first_line


def compare_finished(job: JobSpec, task: str, output: JobOutput, emit: Emit, *, anew: bool) -> None:
    """Compare a finished score task with the others that have finished. A comparison that cannot be made is a warning. `anew`: also if
    there is a comparison already."""
    for name, first in _pairs_of(job.to_yaml_dict()):
        if task not in (name, first) or not all(output.store.exists(f"{each}/result.json") for each in (name, first)):
            continue
        if not anew and output.store.exists(_place(name, first)):
            continue
        emit(Stage(task=task, name=f"comparing {name} with {first}"))
        try:
            output.store.put(_place(name, first), json.dumps(_made(output, name, first), allow_nan=False).encode())
        except Exception as error:  # noqa: BLE001 - the task has succeeded: no output of another task may fail it
            emit(Warned(task=task, message=f"{name} is not compared with {first}: {_why(error)}"))


def _made(output: JobOutput, name: str, first: str) -> dict[str, Any]:
    from tuneyard.scoring.paired import compare  # late: it loads numpy

    return compare(output.task_uri(name), output.task_uri(first), names=(name, first)).to_dict()


def changes_since_last_good(job: JobSpec, task: str, output: JobOutput, emit: Emit, *, anew: bool) -> dict[str, Any]:
    """The change of each figure of a finished score task since the last good run of its Schedule, over the same rows.

    Shape: {"changes": {figure: {"change", "low", "high", "rows"}}}. With a warning, {"rows_not_compared": why} where the rows of that run
    are others, cannot be read, or were scored by another version. `anew`: also if there is a comparison already.
    """
    last = LastGood.of(job.metadata.annotations)
    if last is None or not _is_compared(job.to_yaml_dict(), task):
        return {}
    place = f"{task}/against/run.{last.run}.json"  # names of tasks have no dot
    try:
        if not anew and output.store.exists(place):
            return _changes(json.loads(output.store.get(place)))
        emit(Stage(task=task, name=f"comparing {task} with that of {last.run}"))
        made = _against(output.task_uri(task), join(last.output, task), (task, f"{task} of {last.run}"))
        output.store.put(place, json.dumps(made, allow_nan=False).encode())
        return _changes(made)
    except Exception as error:  # noqa: BLE001 - the task has succeeded: no output of another run may fail it
        emit(Warned(task=task, message=f"the rows of {task} are not compared with those of {last.run}: {_why(error)}"))
        return {NOT_COMPARED: redact(first_line(_why(error)))}


def _why(error: Exception) -> str:
    """The error in the log. Errors of libraries have their type: a message such as `'row'` says little alone."""
    return error.cause if isinstance(error, TuneyardError) else f"{type(error).__name__}: {error}"


def _against(task: str, against: str, names: tuple[str, str]) -> dict[str, Any]:
    """Raises BadInput unless both have the same rows."""
    from tuneyard.scoring.paired import ScoredOutput, compare  # late: it loads numpy

    rows, others = (ScoredOutput.open(each).layout.rows for each in (task, against))
    if rows != others:
        raise BadInput(f"{rows:,} rows were scored, and {others:,} in that run", "score the same rows")
    made = compare(task, against, names=names)
    if made.rows != rows:
        raise BadInput(f"{made.rows:,} of {rows:,} rows are in both", "score the same rows")
    return made.to_dict()


def _changes(made: dict[str, Any]) -> dict[str, Any]:
    changes = {
        each["figure"]: {"change": each["difference"], "low": each["interval"][0], "high": each["interval"][1], "rows": each["rows"]}
        for each in made["figures"]
        if each["interval"] is not None
    }
    return {"changes": changes} if changes else {}


def with_comparisons(report: Report, store: Store) -> Report:
    """The report with the comparisons that its output holds. Raises StorageError."""
    if report.spec is None:
        return report
    found = []
    for name, first in _pairs_of(report.spec):
        try:
            found.append(json.loads(store.get(_place(name, first))))
        except NotFound:
            continue
    return replace(report, comparisons=found)


def _place(name: str, first: str) -> str:
    return f"{name}/against/{first}.json"


def _pairs_of(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Score tasks of language models with metrics, each with the first on the same rows."""
    names = [task["name"] for task in spec.get("spec", {}).get("tasks", []) if _is_compared(spec, task["name"])]
    for group in comparable(spec, names):
        yield from ((name, group[0]) for name in group[1:])


def _is_compared(spec: dict[str, Any], name: str) -> bool:
    """Whether a task scores a language model's answers by metrics."""
    task = next(each for each in spec.get("spec", {}).get("tasks", []) if each["name"] == name)
    score = task.get("score") or {}
    return bool(score.get("metrics") or score.get("ownMetrics") or score.get("judge"))
