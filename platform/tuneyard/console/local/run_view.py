"""What the page of a run shows of its record: the graph, the time line, and each task as its report shows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tuneyard.console.drawings.task_graph import Node, task_graph
from tuneyard.console.drawings.time_line import Span, time_line
from tuneyard.console.local.run_record import RunRecord, upstream
from tuneyard.tracking.report_page import task_view

_LOG = logging.getLogger(__name__)
_WRONG = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)
_FACTS = ("kind", "status", "failure", "message", "attempt", "plan", "wall_s")


def run_view(record: RunRecord, now: datetime) -> dict[str, Any]:
    """Values for the template of a run."""
    needs = upstream(record.spec)
    nodes = [Node(name, str(task.get("kind", "")), _state(task), needs.get(name, ())) for name, task in record.tasks.items()]
    spans = [
        Span(
            title=row["task"] if row["number"] == 1 else f"{row['task']}, attempt {row['number']}",
            note=_note(row),
            state=row["status"],
            started_at=row["started_at"],
            ended_at=row["ended_at"] or (record.run.ended_at if record.run.status != "running" else None),
        )
        for row in record.attempts
    ]
    return {
        "record": record,
        "run": record.run,
        "graph": task_graph(nodes),
        "time_line": time_line(spans, now),
        "tasks": [_view(name, task) for name, task in record.tasks.items()],
    }


def _state(task: Mapping[str, Any]) -> str:
    return str(task.get("status") or "pending")


def _note(row: Mapping[str, Any]) -> str:
    where = f"{row['workers']} x {row['sku']}" if row["sku"] else ""
    return ": ".join(part for part in (row["failure"], row["message"].partition("\n")[0]) if part) or where


def _view(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """The view of a task. A part of a report that cannot be read is left out, and the page says so."""
    try:
        return task_view(name, _without_log(task))
    except _WRONG as error:
        _LOG.warning("task %r of a report cannot be shown: %s", name, error)
        facts = {key: task[key] for key in _FACTS if key in task and key != "plan"}
        return {**task_view(name, facts), "warnings": ["the rest of this task's report cannot be read"]}


def _without_log(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attempts that wait for their first step have no losses to show."""
    return {key: value for key, value in task.items() if key != "losses" or value}
