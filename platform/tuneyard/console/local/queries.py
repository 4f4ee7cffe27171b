"""What only the console asks of run history: counts per day, curves of scores, time by kind of work. Jobs come from `History`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tuneyard.tracking.history import History
from tuneyard.tracking.tables import IMPORTED, attempts, jobs, steps

MOST_TEAMS = 200
MOST_SCORES = 60
"""Runs in the curves of metrics."""


def teams_of(history: History) -> list[str]:
    query = sa.select(jobs.c.team).where(jobs.c.namespace != IMPORTED).distinct().order_by(jobs.c.team).limit(MOST_TEAMS)
    return [row["team"] for row in history.select(query)]


def scores_of(history: History, name: str, task: str, most: int = MOST_SCORES) -> list[dict[str, Any]]:
    """Metrics of a score task in the last runs of a job that ended well, the oldest first: `id`, `started_at`, `metrics`."""
    query = (
        sa.select(jobs.c.id, jobs.c.started_at, attempts.c.result)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(jobs.c.name == name, attempts.c.task == task, attempts.c.kind == "score", attempts.c.status == "succeeded")
        .order_by(jobs.c.started_at.desc(), jobs.c.id.desc())
        .limit(most)
    )
    found = []
    for row in reversed(history.select(query)):
        metrics = row["result"].get("metrics") if isinstance(row["result"], dict) else None
        if isinstance(metrics, dict):
            found.append({"id": row["id"], "started_at": row["started_at"], "metrics": metrics})
    return found


def ended_by_day(history: History, now: datetime, days: int) -> list[tuple[datetime, dict[str, int]]]:
    """Runs that started on each of the last days of this machine's calendar, by status; the oldest day first."""
    begins = [_midnight(now) - timedelta(days=back) for back in range(days)]
    day = sa.case(*[(jobs.c.started_at >= begin, index) for index, begin in enumerate(begins)], else_=-1)
    query = (
        sa.select(day.label("on_day"), jobs.c.status, sa.func.count().label("n"))
        .where(jobs.c.started_at >= begins[-1], jobs.c.namespace != IMPORTED)
        # By name: PostgreSQL takes the same expression with other parameters for another one.
        .group_by(sa.literal_column("on_day"), jobs.c.status)
    )
    found: list[dict[str, int]] = [{} for _ in begins]
    for row in history.select(query):
        found[row["on_day"]][row["status"]] = row["n"]
    return list(reversed(list(zip(begins, found, strict=True))))


def split_of(history: History, attempt_id: str) -> dict[str, float]:
    """Seconds of all steps by kind of work."""
    columns = [name for name in steps.c.keys() if name.endswith("_s") and name not in ("step_s", "tokens_per_s")]  # noqa: SIM118
    query = sa.select(*(sa.func.coalesce(sa.func.sum(steps.c[name]), 0.0).label(name) for name in columns))
    return history.select(query.where(steps.c.attempt_id == attempt_id))[0]


def last_change(history: History, job_id: str) -> tuple[Any, ...]:
    """A value that differs after each write of this run."""
    own = history.select(sa.select(jobs.c.status, jobs.c.ended_at).where(jobs.c.id == job_id))
    states = history.select(sa.select(attempts.c.id, attempts.c.status).where(attempts.c.job_id == job_id).order_by(attempts.c.id))
    at_work = [row["id"] for row in states if row["status"] == "running"]
    last = history.select(sa.select(sa.func.max(steps.c.step).label("step")).where(steps.c.attempt_id.in_(at_work))) if at_work else []
    return (*(tuple(row.values()) for row in (*own, *states, *last)),)


def _midnight(now: datetime) -> datetime:
    local = now.astimezone()
    return local.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
