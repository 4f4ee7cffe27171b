"""Keeps run history small: series of steps are thinned, then removed; jobs, attempts, scores and usage stay.

Only rows that a hub has recorded are touched. Each call does a bounded amount of work in one transaction.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime

import sqlalchemy as sa

from tuneyard.tracking import tables
from tuneyard.tracking.past import ENDED, MOST_POINTS

ATTEMPTS_AT_ONCE = 50
UNRECORDED = "Unrecorded"
"""Failure of an attempt whose end the hub has not seen."""


def remove_series(connection: sa.Connection, ended_before: datetime) -> int:
    """Remove the steps of some attempts that ended before a moment. Returns the number of attempts."""
    step = tables.steps.c
    chosen = _with_steps(1, ended_before)
    found = list(connection.execute(chosen).scalars())
    if found:
        connection.execute(tables.steps.delete().where(step.attempt_id.in_(found)))
    return len(found)


def thin_series(connection: sa.Connection, ended_before: datetime, most: int = MOST_POINTS) -> int:
    """Thin the steps of some attempts that ended before a moment to `most` points at most. Returns the number of attempts."""
    step = tables.steps.c
    found = list(connection.execute(_with_steps(most + 1, ended_before)).scalars())
    for attempt_id in found:
        number = sa.func.row_number().over(order_by=step.step).label("number")
        counted = sa.select(step.step, number, sa.func.count().over().label("total")).where(step.attempt_id == attempt_id).subquery()
        stride = (counted.c.total + (most - 2)) // (most - 1)
        spare = sa.select(counted.c.step).where((counted.c.number - 1) % stride != 0, counted.c.number != counted.c.total)
        connection.execute(tables.steps.delete().where(step.attempt_id == attempt_id, step.step.in_(spare)))
    return len(found)


def _with_steps(least: int, ended_before: datetime) -> sa.Select[tuple[str]]:
    """Attempts of hubs that ended before a moment and have at least `least` steps."""
    attempt, job, step = tables.attempts.c, tables.jobs.c, tables.steps.c
    # One look into an index per attempt; a join would read all jobs, and a count all steps.
    enough = sa.select(step.step).where(step.attempt_id == attempt.id).limit(1).offset(least - 1).exists()
    origin = sa.select(job.origin).where(job.id == attempt.job_id).scalar_subquery()
    return sa.select(attempt.id).where(attempt.ended_at < ended_before, enough, origin == tables.ON_HUB).limit(ATTEMPTS_AT_ONCE)


def close_gone(connection: sa.Connection, hub: str, present: Set[str], after: str, most: int = 1000) -> str:
    """End jobs of a hub whose JobSpec has vanished without its record, at the moment of their last record.

    `present`: uids of the JobSpecs that exist. Looks at `most` jobs with ids above `after`. Returns the last id; empty at the end.
    """
    job, attempt = tables.jobs.c, tables.attempts.c
    open_jobs = (
        sa.select(job.id, job.uid, job.recorded_at)
        .where(job.hub == hub, job.origin == tables.ON_HUB, job.status.not_in(ENDED), job.id > after)
        .order_by(job.id)
        .limit(most)
    )
    found = list(connection.execute(open_jobs))
    for key, uid, seen in found:
        if uid not in present:
            gone = {"mark": "", "status": "cancelled", "message": "its JobSpec vanished before its end was recorded", "ended_at": seen}
            connection.execute(tables.jobs.update().where(job.id == key).values(**gone))
            lost = {"status": "failed", "failure": UNRECORDED, "ended_at": seen}
            connection.execute(tables.attempts.update().where(attempt.job_id == key, attempt.ended_at.is_(None)).values(**lost))
    return found[-1][0] if len(found) == most else ""
