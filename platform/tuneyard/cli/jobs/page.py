"""One job of the hub as a page of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tuneyard.api import Attempt, Phase, TaskStatus
from tuneyard.cli.jobs.figures import attempt_state, bar, done_words, progress_of, seconds_since, took
from tuneyard.cli.output import table_lines
from tuneyard.cluster import HubJob
from tuneyard.federation import duration_words
from tuneyard.tracking import JobProgress
from tuneyard.tracking.known_figures import known_figures
from tuneyard.tracking.progress.words import age, figures, first_line, place_words, start_words

_TAIL_LINES = 15
_ATTEMPTS = ("number", "task", "phase", "cluster", "sku", "gpus", "resumed_from", "last_step", "checkpoint", "took")


def page(job: HubJob, now: datetime) -> str:
    """The state of the job, its tasks and attempts, its failures, and the next step for a person."""
    progress = progress_of(job)
    above = [_head(job, progress, now), _tasks(job, progress), _attempts(job, now)]
    sections = [*above, _failures(job), _conditions(job, now), _results(job), _next(job)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _head(job: HubJob, progress: JobProgress, now: datetime) -> list[str]:
    status = job.status
    where = f" on {place_words(status.placement)}" if status.placement and not job.phase.final else ""
    lines = [f"{job.label}  {job.state}{where}, {age(seconds_since(job.created_at, now))} old"]
    if status.message:
        lines.append(status.message)
    if progress.starts_s is not None:
        lines.append(f"expected start: {start_words(progress.starts_s, now.timestamp())}")
    guess = status.placement.seconds if status.placement is not None and status.progress.eta_s is None else None
    newest = progress.tasks.get(progress.newest)
    ends = newest is None or newest.kind != "serve"
    if status.placement is not None and guess is not None and ends and not job.phase.final:  # the pace of the job replaces it later
        lines.append(f"takes {duration_words(guess, status.placement.seconds_from)}")
    if newest is not None and newest.at_work:
        drawn = [bar(newest.fraction, 20)] if newest.fraction is not None else []
        line = "  ".join(filter(None, [*drawn, done_words(newest), *figures(newest)]))
        lines += [line] if line else []
    return lines


def _tasks(job: HubJob, progress: JobProgress) -> list[str]:
    found = {task.name: task for task in job.status.tasks}
    rows: list[dict[str, Any]] = []
    for outline in job.tasks:
        task = found.get(outline.name, TaskStatus(name=outline.name))
        seen = progress.tasks[outline.name]
        rows.append(
            {
                "task": outline.name,
                "kind": outline.kind,
                "phase": str(task.phase),
                "after": ", ".join(outline.upstream) or None,
                "progress": done_words(seen) or None,
                "figures": "  ".join(figures(seen)) or None,
                "message": first_line(task.message) or None,
            }
        )
    return _table(("task", "kind", "phase", "after", "progress", "figures", "message"), rows)


def _attempts(job: HubJob, now: datetime) -> list[str]:
    rows = [
        {
            "number": attempt.number,
            "task": attempt.task,
            "phase": attempt_state(attempt),
            "cluster": attempt.placement.cluster if attempt.placement else None,
            "sku": attempt.placement.sku if attempt.placement else None,
            "gpus": attempt.placement.gpus if attempt.placement else None,
            "resumed_from": attempt.resumed_from or None,
            "last_step": attempt.last_step or None,
            "checkpoint": attempt.checkpoint_step or None,
            "took": took(attempt, now),
        }
        for attempt in job.status.attempts
    ]
    return _table(_ATTEMPTS, rows) if rows else []


def _failures(job: HubJob) -> list[str]:
    """Each failed attempt in two lines, and the last log lines of the newest one."""
    failed = [attempt for attempt in job.status.attempts if attempt.failure]
    lines = [line for attempt in failed for line in _failure(attempt)]
    if failed and failed[-1].log_tail:
        lines += [f"    | {line}" for line in failed[-1].log_tail.rstrip().splitlines()[-_TAIL_LINES:]]
    return lines


def _failure(attempt: Attempt) -> Iterator[str]:
    node = f" on node {attempt.failed_node}" if attempt.failed_node else ""
    yield f"attempt {attempt.number} of {attempt.task}: {attempt.failure}{node}: {attempt.message or 'no message'}"
    if attempt.next_step:
        yield f"  next: {attempt.next_step}"


def _conditions(job: HubJob, now: datetime) -> list[str]:
    rows = [
        {
            "condition": condition.type,
            "status": condition.status,
            "since": age(seconds_since(condition.last_transition_time, now)) if condition.last_transition_time else None,
            "reason": condition.reason or None,
            "message": condition.message.partition("\n")[0] or None,
        }
        for condition in job.status.conditions
    ]
    return _table(("condition", "status", "since", "reason", "message"), rows) if rows else []


def _results(job: HubJob) -> list[str]:
    usage = job.status.usage
    lines = [f"metrics   {line}" for line in _metrics(job)]
    lines += [f"artifact  {uri}" for uri in job.status.artifacts]
    if job.output:
        lines.append(f"output    {job.output}")
    if usage.gpu_hours:
        lines.append(f"usage     {usage.gpu_hours:.2f} GPU hours{f', cost {usage.cost:.2f}' if usage.cost else ''}")
    return lines


def _metrics(job: HubJob) -> Iterator[str]:
    """`judge: exact match 0.447, ROUGE-L 0.521`, for each score task that has any."""
    scores = {outline.name for outline in job.tasks if outline.kind == "score"}
    for task in job.status.tasks:
        known_to = known_figures({"spec": job.filled}, task.name, task.metrics) if task.name in scores else {}
        known = [(figure, task.metrics.get(figure.name)) for figure in known_to.values()]
        said = [f"{figure.title} {figure.text(value)}" for figure, value in known if isinstance(value, (int, float))]
        if said:
            yield f"{task.name}: {', '.join(said)}"


def _next(job: HubJob) -> list[str]:
    if job.phase is Phase.FAILED:
        advice = job.next_step()
        return [f"next: {advice}"] if advice and len(job.status.attempts) > 1 else []
    if job.phase is Phase.RUNNING:
        return [f"logs: tuneyard logs {job.name} -n {job.namespace} -f"]
    return []


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    """The table without its empty columns."""
    return table_lines([column for column in columns if any(row[column] is not None for row in rows)], rows)
