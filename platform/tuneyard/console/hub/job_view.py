"""What the page of a hub's job shows. Pure, but for the scheduler's forecast, which is computed from the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tuneyard.api import Attempt
from tuneyard.cluster import HubJob, Outlook, Snapshot
from tuneyard.console.drawings.task_graph import Node, task_graph
from tuneyard.console.drawings.time_line import Span, time_line
from tuneyard.console.hub.past_record import PastRecord
from tuneyard.console.hub.rows import moment_of
from tuneyard.console.hub.search_view import search_of
from tuneyard.console.task_views import task_views
from tuneyard.tracking import job_of_status
from tuneyard.tracking.known_figures import known_figures
from tuneyard.tracking.progress.words import figures, first_line, place_words, progress_line, start_words

TAIL_LINES = 20


def job_view(job: HubJob, now: datetime, record: PastRecord | None = None) -> dict[str, Any]:
    """Values for the template of a job: the live part. `record`: what history has of it, for curves and tables."""
    views = task_views(record.tasks) if record is not None else {}
    progress = job_of_status(job.status, {task.name: task.kind for task in job.tasks}, label=job.label)
    states = {task.name: task for task in job.status.tasks}
    nodes = [Node(task.name, task.kind, progress.tasks[task.name].state, task.upstream) for task in job.tasks]
    failed = [attempt for attempt in job.status.attempts if attempt.failure]
    tail = failed[-1].log_tail.rstrip().splitlines()[-TAIL_LINES:] if failed else []
    tasks = []
    for outline in job.tasks:
        seen = progress.tasks[outline.name]
        status = states.get(outline.name)
        tasks.append(
            {
                "name": outline.name,
                "kind": outline.kind,
                "state": seen.state,
                "share": None if seen.fraction is None or not seen.at_work else round(100 * seen.fraction, 1),
                "line": progress_line(seen) if seen.at_work else "  ".join(figures(seen)),
                "message": status.message if status is not None else "",
                "metrics": _metrics(job, outline.name, status.metrics if status is not None else {}),
                "artifacts": status.artifacts if status is not None else [],
                "charts": views.get(outline.name, {}).get("charts", []),
                "search": search_of(status.metrics) if status is not None and outline.kind == "tune" else {},
            }
        )
    place = job.status.placement
    return {
        "job": job,
        "state": job.state,
        "place": place_words(place) if place is not None and not job.phase.final else "",
        "starts": start_words(progress.starts_s, now.timestamp()) if progress.starts_s is not None else "",
        "graph": task_graph(nodes),
        "time_line": time_line([span for attempt in job.status.attempts if (span := _span(attempt)) is not None], now),
        "tasks": tasks,
        "failed": failed,
        "tail": "\n".join(tail),
    }


def outlooks_of(job: HubJob, snapshot: Snapshot, now: datetime) -> list[Outlook]:
    """The scheduler's reasons for the tasks that wait, as `tuneyard why` prints them; none of a job that cannot be judged."""
    item = next((each for each in snapshot.jobs if each["metadata"].get("uid") == job.uid), None)
    found = snapshot.read_job(item) if item is not None else None
    if found is None:
        return []
    asks, _ = snapshot.asks(found[0], job.created_at.timestamp(), found[1])
    return snapshot.outlook(asks, now) if asks else []


def reasons_of(outlooks: Sequence[Outlook], now: datetime) -> list[dict[str, Any]]:
    """Rows for the page: a sentence per task, and the obstacle on each cluster."""
    found = []
    for outlook in outlooks:
        wait, place = outlook.wait, outlook.place
        if place is not None:
            says = f"can start now on {place.cluster}, {place.workers} x {place.sku}"
        else:
            says = f"{outlook.ahead} ahead of it; expected start: {start_words(wait.starts if wait else None, now.timestamp())}"
        held = [text for text in (wait.held, wait.unchecked) if text] if wait is not None else []
        found.append({"task": outlook.task, "says": says, "held": held, "clusters": dict(wait.reasons) if wait is not None else {}})
    return found


def _metrics(job: HubJob, task: str, told: dict[str, Any]) -> list[tuple[str, str]]:
    known = [(figure, told.get(figure.name)) for figure in known_figures({"spec": job.filled}, task, told).values()]
    return [(figure.title, figure.text(value)) for figure, value in known if isinstance(value, int | float)]


def _span(attempt: Attempt) -> Span | None:
    placed, started = moment_of(attempt.placed_at), moment_of(attempt.started_at)
    begins = started or placed
    if begins is None:
        return None
    where = place_words(attempt.placement) if attempt.placement is not None else ""
    return Span(
        title=attempt.task if attempt.number == 1 else f"{attempt.task}, attempt {attempt.number}",
        note=": ".join(part for part in (attempt.failure or "", first_line(attempt.message)) if part) or where,
        state=str(attempt.phase).lower(),
        started_at=begins,
        ended_at=moment_of(attempt.ended_at),
        waited_from=placed if started is not None else None,
    )
