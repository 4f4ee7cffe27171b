"""One run as its page shows it: rows of history, completed by report.json in the output folder where that report is of this run.

History is current within a second, and knows every attempt. report.json knows more of a task (warnings, checkpoints, figures), and is
written at the start of each task and at the end of the run. A later run into the same folder replaces it: it is then left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.console.local import queries
from tuneyard.runtime.liveness import is_orphaned
from tuneyard.storage.uris import is_local, local_path
from tuneyard.tracking import REPORT_JSON, Report
from tuneyard.tracking.history import History
from tuneyard.tracking.past import PastJob
from tuneyard.tracking.report import json_safe

MOST_POINTS = 800
_SAME_RUN_S = 5.0
"""Between the row of a run and the start that its report tells."""
_LARGEST_REPORT = 64 << 20
_SERIES = ("step", "loss", "learning_rate", "tokens_per_s", "mfu", "memory_gb", "grad_norm")


@dataclass(frozen=True)
class RunRecord:
    """`tasks`: as in report.json, by name. `attempts`: rows of history, the oldest first, without trials of a search.

    `orphaned`: history says running, and no process of this machine holds the output folder: the run was killed.
    """

    run: PastJob
    spec: Mapping[str, Any]
    attempts: Sequence[Mapping[str, Any]]
    tasks: Mapping[str, Mapping[str, Any]]
    folder: Path | None
    orphaned: bool
    comparisons: Sequence[Mapping[str, Any]] = ()
    """Of score tasks on the same rows, as in report.json."""


def read_run(history: History, reference: str) -> RunRecord | None:
    """A run by its id, or the newest of a job by its name. None: there is none."""
    run = history.find(reference)
    if run is None:
        return None
    spec = history.spec(run)
    folder = folder_of(run.output)
    rows = [] if run.imported else [row for row in history.attempts(run.id) if "/" not in row["task"]]
    report = _report_of(folder, run)
    names = list(dict.fromkeys([*(report.tasks if report else ()), *_task_names(spec), *(row["task"] for row in rows)]))
    tasks = {name: _task(history, name, spec, rows, report.tasks.get(name, {}) if report else {}) for name in names}
    return RunRecord(run, spec, rows, tasks, folder, is_orphaned(run.status, run.output), _comparisons_of(report))


def folder_of(output: str) -> Path | None:
    """The output folder on this machine; None for other storage, and where it does not exist."""
    try:
        folder = local_path(output) if output and is_local(output) else None
        return folder if folder is not None and folder.is_absolute() and folder.is_dir() else None
    except (BadInput, ValueError, OSError):
        return None


def _report_of(folder: Path | None, run: PastJob) -> Report | None:
    if folder is None:
        return None
    try:
        file = folder / REPORT_JSON
        if file.stat().st_size > _LARGEST_REPORT:
            return None
        report = Report.from_json(file.read_bytes())
        apart = datetime.fromisoformat(report.started_at) - run.started_at
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    right = isinstance(report.tasks, dict) and all(isinstance(task, dict) for task in report.tasks.values())
    return report if right and abs(apart.total_seconds()) < _SAME_RUN_S else None


def _comparisons_of(report: Report | None) -> list[Mapping[str, Any]]:
    found = report.comparisons if report is not None and isinstance(report.comparisons, list) else []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("figures"), list)]


def _task_names(spec: Mapping[str, Any]) -> list[str]:
    tasks = (spec.get("spec") or {}).get("tasks") or []
    return [str(task["name"]) for task in tasks if isinstance(task, dict) and task.get("name")]


def _task(
    history: History, name: str, spec: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], told: Mapping[str, Any]
) -> dict[str, Any]:
    """A task as report.json holds it. `told`: its part of this run's report."""
    own = [row for row in rows if row["task"] == name]
    if not own:
        return {"kind": _kind(spec, name), "status": "pending", **told}
    last = own[-1]
    result = last["result"] if isinstance(last["result"], dict) else {}
    facts = {"kind": last["kind"] or _kind(spec, name), "status": last["status"], "attempt": last["number"]}
    facts |= {key: last[key] for key in ("failure", "message", "plan") if last[key]}
    ended = last["ended_at"] or datetime.now(UTC)
    facts["wall_s"] = max(0.0, (ended - last["started_at"]).total_seconds())
    if told.get("status") not in (None, "running", "pending") and last["status"] != "running":
        return {**facts, **told}
    measured = _measured(history, last["id"])
    return {**told, **measured, **facts, **result, **_progress(told, measured)}


def _progress(told: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """The progress of the report with the last step of history, which is newer."""
    progress = told.get("progress")
    reached = (measured.get("series") or {}).get("step")
    if not isinstance(progress, dict) or not reached:
        return {}
    return {"progress": {**progress, "step": max(progress.get("step", 0), reached[-1])}} if "step" in progress else {}


def _measured(history: History, attempt_id: str) -> dict[str, Any]:
    """Curves of an attempt from history, as report.json holds them."""
    rows = history.series(attempt_id, MOST_POINTS)
    if not rows:
        return {}
    series = {name: [row[name] for row in rows] for name in _SERIES}
    share = [row["data_s"] / row["step_s"] if row["data_s"] is not None and row["step_s"] else None for row in rows]
    evaluated = [[row["step"], row["loss"]] for row in history.evaluations(attempt_id)]
    found: dict[str, Any] = {
        "series": {name: column for name, column in {**series, "data_share": share}.items() if any(item is not None for item in column)},
        "losses": [row["loss"] for row in rows],
        "split": queries.split_of(history, attempt_id),
    }
    return {**found, **({"evaluations": evaluated} if evaluated else {})}


def _kind(spec: Mapping[str, Any], name: str) -> str:
    for task in (spec.get("spec") or {}).get("tasks") or []:
        if isinstance(task, dict) and task.get("name") == name:
            return next((kind for kind in TASK_KINDS if kind in task), "")
    return ""


def spec_text(spec: Mapping[str, Any]) -> str:
    """The JobSpec as YAML."""
    import yaml

    safe = json.loads(json.dumps(json_safe(spec)))
    return yaml.safe_dump(safe, sort_keys=False, allow_unicode=True) if spec else ""
