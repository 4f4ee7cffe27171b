"""Past jobs for people: a row of a list, the page of one job, a row per attempt for spreadsheets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tuneyard.cli.history.plans import PLAN_COLUMNS, plan_figures, plan_lines
from tuneyard.cli.output import duration_text, figure_text, table_lines
from tuneyard.data.visible import visible

Row = dict[str, Any]
COLUMNS = ("name", "team", "user", "status", "started", "took", "attempts", "gpu_hours", "cost", "origin", "output")
_ATTEMPTS = ("task", "number", "status", "where", "began", "took", "steps", "gpu_hours", "cost", "failure")
ATTEMPT_COLUMNS = (
    *("job_id", "namespace", "job", "team", "user", "origin", "job_status"),
    *("task", "kind", "number", "status", "failure", "message", "cluster", "sku", "gpus", "workers", "price_per_gpu_hour"),
    *("placed_at", "started_at", "ended_at", "resumed_from", "last_step", "gpu_hours", "cost"),
    *PLAN_COLUMNS,
)


def row_of(job: Mapping[str, Any]) -> Row:
    """The row of a list. Columns that say nothing of any job are left out by the caller."""
    began = job["placed_at"] or job["started_at"]
    return {
        **job,
        "started": _minute(began),
        "took": _took(began, job["ended_at"]),
        "gpu_hours": round(job["gpu_hours"], 2),
        "cost": round(job["cost"], 2),
        "origin": "" if job["origin"] in ("local", "hub") else job["origin"],
    }


def says(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column says anything of any row: costs of 0 alone are those of machines without a price."""
    nothing = (None, "", 0) if column == "cost" else (None, "")
    return any(row.get(column) not in nothing for row in rows)


def page_of(job: Mapping[str, Any]) -> str:
    """One job: head, attempts, scores of each task."""
    name = f"{job['namespace']}/{job['name']}" if job["origin"] == "hub" else job["name"]
    head = [f"{name}  {job['status']}{f': {message}' if (message := job['message']) else ''}"]
    who = f", submitted by {job['user']}" if job["user"] else ""
    kind = {"imported": "imported: a run of others", "hub": "recorded by the hub"}.get(job["origin"], "run on a machine")
    head += [f"team {job['team']}{who}; {kind}; id {job['id']}", f"submitted {_minute(job['started_at'])}{_ended(job)}"]
    head += [f"output {job['output']}"] if job["output"] else []
    attempts = [_attempt(each) for each in job["attempts"]]
    shown = [column for column in _ATTEMPTS if says(column, attempts)]
    lines = [*head, "", *(table_lines(shown, attempts) if attempts else ["no attempt"])]
    for each in job["attempts"]:
        lines.extend(plan_lines(each))
        if each["scores"]:
            figures = ", ".join(f"{metric} {figure_text(value, 4)}" for metric, value in sorted(each["scores"].items()))
            lines.append(f"{each['task']}: {figures}")
    return "\n".join(map(visible, lines))


def attempt_rows(job: Mapping[str, Any]) -> Iterator[Row]:
    """A row per attempt, with the columns of ATTEMPT_COLUMNS."""
    own = {"job": job["name"], "job_status": job["status"], **{name: job[name] for name in ("namespace", "team", "user", "origin")}}
    for attempt in job["attempts"]:
        yield {name: _plain(value) for name, value in {**attempt, **plan_figures(attempt), **own}.items()}


def _plain(value: Any) -> Any:
    """A cell that a spreadsheet takes for text, and never for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _attempt(attempt: Mapping[str, Any]) -> Row:
    place = f"{attempt['gpus'] or attempt['workers']} x {attempt['sku']}" if attempt["sku"] else ""
    began = attempt["placed_at"] or attempt["started_at"]
    reason = f"{attempt['failure']}: {attempt['message']}" if attempt["failure"] and attempt["message"] else attempt["failure"]
    steps = f"{attempt['resumed_from']} to {attempt['last_step']}" if attempt["last_step"] else ""
    return {
        **attempt,
        "where": " on ".join(filter(None, (place, attempt["cluster"]))),
        "began": _minute(began),
        "took": _took(began, attempt["ended_at"]),
        "steps": steps,
        "gpu_hours": round(attempt["gpu_hours"], 3) if attempt["gpu_hours"] else None,
        "cost": attempt["cost"] if attempt["cost"] is None else round(attempt["cost"], 2),
        "failure": reason,
    }


def _ended(job: Mapping[str, Any]) -> str:
    placed = f", placed {_minute(job['placed_at'])}" if job["placed_at"] else ""
    return f"{placed}, ended {_minute(job['ended_at'])}" if job["ended_at"] else placed


def _minute(text: str | None) -> str | None:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}" if text else None


def _took(began: str | None, ended: str | None) -> str | None:
    if not began or not ended:
        return None
    return duration_text(max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()))
