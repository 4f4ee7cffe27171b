"""What the page of a run shows of its record: the graph, the time line, and each task as its report shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tuneyard.console.drawings.task_graph import Node, task_graph
from tuneyard.console.drawings.time_line import Span, time_line
from tuneyard.console.local.pairs import pairs_of
from tuneyard.console.local.run_record import RunRecord
from tuneyard.console.task_views import task_views
from tuneyard.console.upstream import upstream
from tuneyard.tracking.progress.words import first_line


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
        "tasks": list(task_views(record.tasks).values()),
        "pairs": pairs_of(record),
    }


def _state(task: Mapping[str, Any]) -> str:
    return str(task.get("status") or "pending")


def _note(row: Mapping[str, Any]) -> str:
    where = f"{row['workers']} x {row['sku']}" if row["sku"] else ""
    return ": ".join(part for part in (row["failure"], first_line(row["message"])) if part) or where
