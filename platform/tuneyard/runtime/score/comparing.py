"""Compares finished score tasks of one job on the same rows, and puts the comparisons into its report.

The first such task of the file is the one that the others are compared with. A comparison is made when the second of a pair ends, wherever
that is, and kept in `<task>/against/<first>.json`. On a hub both tasks may end at once: then both make the same comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.runtime.output import JobOutput
from tuneyard.storage import NotFound, Store
from tuneyard.tracking import Emit, Report, Stage, Warned, comparable


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
            made = _made(output, name, first)
        except (TuneyardError, OSError, ValueError) as error:
            emit(Warned(task=task, message=f"{name} is not compared with {first}: {getattr(error, 'cause', error)}"))
        else:
            output.store.put(_place(name, first), json.dumps(made).encode())


def _made(output: JobOutput, name: str, first: str) -> dict[str, Any]:
    from tuneyard.scoring.paired import compare  # late: it loads numpy

    return compare(output.task_uri(name), output.task_uri(first), names=(name, first)).to_dict()


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
    tasks = spec.get("spec", {}).get("tasks", [])
    scored = {task["name"]: task.get("score") or {} for task in tasks}
    names = [name for name, score in scored.items() if score.get("metrics") or score.get("ownMetrics") or score.get("judge")]
    for group in comparable(spec, names):
        yield from ((name, group[0]) for name in group[1:])
