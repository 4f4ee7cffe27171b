"""A job of the hub's history as pages show it: the row that the API of history answers, in the form of a report's tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from tuneyard.console.hub.rows import moment_of
from tuneyard.console.upstream import tasks_of
from tuneyard.metrics import FIGURES
from tuneyard.tracking.past import PastJob

_SERIES = ("step", "loss", "learning_rate", "tokens_per_s", "mfu", "memory_gb", "grad_norm")
_MOMENTS = ("started_at", "ended_at", "placed_at")
_EPOCH = datetime.fromtimestamp(0, UTC)
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("id", "name", "team", "status", "message", "output"), ""),
    "attempts": 0,
    "gpu_hours": 0.0,
}
"""Values of fields that a row lacks, or has as null, and that `PastJob` has no default for."""


@dataclass(frozen=True)
class PastRecord:
    """`tasks`: as in report.json, by name. `attempts`: as the API answers them, with moments as datetimes, the oldest first."""

    run: PastJob
    spec: Mapping[str, Any]
    attempts: Sequence[Mapping[str, Any]]
    tasks: Mapping[str, Mapping[str, Any]]


def past_job_of(row: Mapping[str, Any]) -> PastJob:
    """The row of a list. Fields that a newer hub adds are left out, and fields that it lacks are empty."""
    known = {each.name: row[each.name] for each in fields(PastJob) if row.get(each.name) is not None}
    moments = {name: moment_of(known.get(name)) for name in _MOMENTS}
    return PastJob(**{**_NOTHING, **known, **moments, "started_at": moments["started_at"] or _EPOCH})


def record_of(row: Mapping[str, Any]) -> PastRecord:
    """The record of one job with its attempts."""
    attempts = [_attempt(each) for each in row.get("attempts") or []]
    spec = _mapping(row.get("spec"))
    names = dict.fromkeys([*(str(task["name"]) for task in tasks_of(spec)), *(each["task"] for each in attempts)])
    tasks = {name: _task([each for each in attempts if each["task"] == name]) for name in names}
    return PastRecord(past_job_of(row), spec, attempts, tasks)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    moments = {name: moment_of(row.get(name)) for name in _MOMENTS}
    return {**row, **moments, "started_at": moments["started_at"] or _EPOCH}


def _task(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A task by its attempts: the figures of the last one, and the curve of all together."""
    if not attempts:
        return {"kind": "", "status": "pending"}
    last = attempts[-1]
    facts = {"kind": last.get("kind") or "", "status": last.get("status") or "", "attempt": last.get("number") or 1}
    facts |= {key: last[key] for key in ("failure", "message", "plan", "resumed_from") if last.get(key)}
    if last["ended_at"] is not None:
        facts["wall_s"] = max(0.0, (last["ended_at"] - last["started_at"]).total_seconds())
    result = last["result"] if isinstance(last.get("result"), Mapping) else {}
    figures = {name: value for name, value in {**result, **(last.get("scores") or {})}.items() if name != "artifacts"}
    metrics = {name: value for name, value in figures.items() if name in FIGURES}
    intervals = {name: [figures[f"{name}.low"], figures[f"{name}.high"]] for name in metrics if _has_bounds(name, figures)}
    artifacts = result.get("artifacts")
    made = {"artifacts": {f"{n}": uri for n, uri in enumerate(artifacts, 1)}} if isinstance(artifacts, list) and artifacts else {}
    others = {name: value for name, value in figures.items() if name not in FIGURES}
    return {**others, **made, **({"metrics": metrics, "intervals": intervals} if metrics else {}), **_measured(attempts), **facts}


def _has_bounds(name: str, figures: Mapping[str, Any]) -> bool:
    return isinstance(figures.get(f"{name}.low"), int | float) and isinstance(figures.get(f"{name}.high"), int | float)


def _measured(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves over all attempts: where one was resumed, its steps replace those that were done again."""
    by_step: dict[int, Mapping[str, Any]] = {}
    evaluated: dict[int, float] = {}
    for attempt in attempts:
        steps = [row for row in attempt.get("series") or [] if isinstance(row.get("step"), int)]
        if steps:
            first = min(row["step"] for row in steps)
            by_step = {step: row for step, row in by_step.items() if step < first}
        by_step |= {row["step"]: row for row in steps}
        evaluated |= {row["step"]: row["loss"] for row in attempt.get("evaluations") or [] if row.get("loss") is not None}
    found: dict[str, Any] = {}
    if by_step:
        steps = [by_step[step] for step in sorted(by_step)]
        series = {name: [row.get(name) for row in steps] for name in _SERIES}
        found["series"] = {name: column for name, column in series.items() if any(each is not None for each in column)}
        losses = [row["loss"] for row in steps if row.get("loss") is not None]
        found |= {"losses": losses} if losses else {}
    return {**found, **({"evaluations": [[step, evaluated[step]] for step in sorted(evaluated)]} if evaluated else {})}
