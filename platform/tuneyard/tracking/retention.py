"""Keeps run history small: series of steps are thinned, then removed; jobs, attempts, scores and usage stay.

Only rows that a hub has recorded are touched. Each call does a bounded amount of work in one transaction. An attempt is looked at once for
each: its row says how much of its series is left (`attempts.retention`), and an index leads to the attempts that are still to be looked at.
A hub that writes an attempt again resets this, since it writes steps too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import datetime

import sqlalchemy as sa

from tuneyard.tracking import tables
from tuneyard.tracking.past import ENDED, MOST_POINTS

CHANGED_AT_ONCE = 50
"""Attempts whose series one call changes, at most."""
LOOKED_AT_AT_ONCE = 500
UNRECORDED = "Unrecorded"
"""Failure of an attempt whose end the hub has not seen."""


def remove_series(connection: sa.Connection, ended_before: datetime) -> int:
    """Remove the steps of some attempts that ended before a moment. Returns the number of attempts that were looked at."""

    def remove(attempts: Sequence[str]) -> None:
        connection.execute(tables.steps.delete().where(tables.steps.c.attempt_id.in_(attempts)))

    return _look(connection, (tables.WHOLE, tables.THINNED), tables.REMOVED, ended_before, 1, remove)


def thin_series(connection: sa.Connection, ended_before: datetime, most: int = MOST_POINTS) -> int:
    """Thin the steps of some attempts that ended before a moment to `most` points at most. Returns the number that were looked at."""

    def thin(attempts: Sequence[str]) -> None:
        step = tables.steps.c
        for attempt_id in attempts:
            number = sa.func.row_number().over(order_by=step.step).label("number")
            counted = sa.select(step.step, number, sa.func.count().over().label("total")).where(step.attempt_id == attempt_id).subquery()
            stride = (counted.c.total + (most - 2)) // (most - 1)
            spare = sa.select(counted.c.step).where((counted.c.number - 1) % stride != 0, counted.c.number != counted.c.total)
            connection.execute(tables.steps.delete().where(step.attempt_id == attempt_id, step.step.in_(spare)))

    return _look(connection, (tables.WHOLE,), tables.THINNED, ended_before, most + 1, thin)


def _look(
    connection: sa.Connection, now: Sequence[int], then: int, ended_before: datetime, least: int, change: Callable[[Sequence[str]], None]
) -> int:
    """One step from the states `now` to the state `then`, for some attempts that ended before a moment. `change` gets the attempts with at
    least `least` steps. Returns the number of attempts in the new state."""
    attempt, job, step = tables.attempts.c, tables.jobs.c, tables.steps.c
    origin = sa.select(job.origin).where(job.id == attempt.job_id).scalar_subquery()
    chosen = sa.select(attempt.id).where(attempt.retention.in_(now), attempt.ended_at < ended_before, origin == tables.ON_HUB)
    found = list(connection.execute(chosen.limit(LOOKED_AT_AT_ONCE)).scalars())
    # One look into an index per attempt; a count would read all steps.
    enough = sa.select(step.step).where(step.attempt_id == attempt.id).limit(1).offset(least - 1).exists()
    long = list(connection.execute(sa.select(attempt.id).where(attempt.id.in_(found), enough)).scalars()) if found else []
    changed, later = long[:CHANGED_AT_ONCE], {*long[CHANGED_AT_ONCE:]}
    if changed:
        change(changed)
    done = [each for each in found if each not in later]
    if done:
        connection.execute(tables.attempts.update().where(attempt.id.in_(done)).values(retention=then))
    return len(done)


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
