"""What only the console asks of run history: pages of jobs by key, counts per day, sums of GPU-hours. Sorting and paging happen in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tuneyard.tracking.history import History
from tuneyard.tracking.tables import IMPORTED, attempts, jobs, steps, usage

PAGE = 50
MOST_COUNTED = 10_000
"""A larger number of matches is shown as `10,000+`."""
MOST_TEAMS = 200
MOST_SCORES = 60
"""Runs in the curves of metrics."""
_JOB = ("id", "name", "namespace", "team", "status", "message", "output", "started_at", "ended_at")


@dataclass(frozen=True)
class Cursor:
    """The place of a job in the list, which is sorted by start and id, the newest first."""

    started_at: datetime
    id: str

    def __str__(self) -> str:
        return f"{self.started_at.astimezone(UTC).isoformat()}~{self.id}"

    @classmethod
    def read(cls, text: str) -> Cursor | None:
        """None for a text that is no cursor: the list then starts at its top."""
        moment, mark, key = text.partition("~")
        try:
            started = datetime.fromisoformat(moment)
        except ValueError:
            return None
        known = mark and key.isalnum() and len(key) <= 32 and started.tzinfo is not None and started.year > 1
        return cls(started, key) if known and started.year < 9999 else None


@dataclass(frozen=True)
class Filter:
    """`text`: a part of the name, or the start of the run's id. Empty fields select nothing."""

    text: str = ""
    status: str = ""
    team: str = ""
    imported: bool = False

    @property
    def empty(self) -> bool:
        return self == Filter()


@dataclass(frozen=True)
class PastRun:
    """One run of a job in a list. `tasks`: name and kind of each, in the order in which they started. `failure`: kind of the last one."""

    id: str
    name: str
    namespace: str
    team: str
    status: str
    message: str
    output: str
    started_at: datetime
    ended_at: datetime | None
    tasks: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0
    gpu_hours: float = 0.0
    failure: str = ""

    @property
    def imported(self) -> bool:
        return self.namespace == IMPORTED

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.started_at, self.id)

    def took_s(self, now: datetime) -> float:
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


@dataclass(frozen=True)
class RunPage:
    """Runs of one page. `older`: the cursor of the next one; None at the end."""

    runs: Sequence[PastRun]
    older: Cursor | None


def page_of(history: History, wanted: Filter, after: Cursor | None = None, size: int = PAGE) -> RunPage:
    """The `size` runs that follow `after`, the newest first."""
    job = jobs.c
    query = sa.select(*(job[name] for name in _JOB)).where(*_conditions(wanted))
    if after is not None:
        query = query.where(sa.or_(job.started_at < after.started_at, sa.and_(job.started_at == after.started_at, job.id < after.id)))
    rows = history.select(query.order_by(job.started_at.desc(), job.id.desc()).limit(size + 1))
    runs = with_facts(history, rows[:size])
    return RunPage(runs, runs[-1].cursor if len(rows) > size else None)


def count_of(history: History, wanted: Filter) -> int:
    """The number of runs, MOST_COUNTED + 1 at most."""
    inner = sa.select(sa.literal(1).label("one")).select_from(jobs).where(*_conditions(wanted)).limit(MOST_COUNTED + 1).subquery()
    return int(history.select(sa.select(sa.func.count().label("n")).select_from(inner))[0]["n"])


def teams_of(history: History) -> list[str]:
    query = sa.select(jobs.c.team).where(jobs.c.namespace != IMPORTED).distinct().order_by(jobs.c.team).limit(MOST_TEAMS)
    return [row["team"] for row in history.select(query)]


def run_of(history: History, reference: str) -> tuple[PastRun, dict[str, Any]] | None:
    """A run and its JobSpec by the run's id, or else the newest run of a job by its name."""
    if "\0" in reference:
        return None
    query = sa.select(*(jobs.c[name] for name in _JOB), jobs.c.spec)
    newest = query.where(jobs.c.name == reference).order_by(jobs.c.started_at.desc(), jobs.c.id.desc()).limit(1)
    rows = history.select(query.where(jobs.c.id == reference)) or history.select(newest)
    if not rows:
        return None
    spec = rows[0].pop("spec")
    return with_facts(history, rows)[0], spec if isinstance(spec, dict) else {}


def runs_named(history: History, name: str, most: int = 20) -> list[PastRun]:
    """Runs of one job, the newest first."""
    query = sa.select(*(jobs.c[column] for column in _JOB)).where(jobs.c.name == name)
    return with_facts(history, history.select(query.order_by(jobs.c.started_at.desc(), jobs.c.id.desc()).limit(most)))


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


def running(history: History, most: int = 20) -> list[PastRun]:
    query = sa.select(*(jobs.c[name] for name in _JOB)).where(jobs.c.status == "running")
    return with_facts(history, history.select(query.order_by(jobs.c.started_at.desc()).limit(most)))


def failed_since(history: History, since: datetime, most: int = 10) -> list[PastRun]:
    query = sa.select(*(jobs.c[name] for name in _JOB)).where(jobs.c.status == "failed", jobs.c.ended_at >= since)
    return with_facts(history, history.select(query.order_by(jobs.c.ended_at.desc()).limit(most)))


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


def gpu_hours_by_team(history: History, since: datetime) -> list[tuple[str, str, float]]:
    """Team, SKU and GPU-hours of the attempts that began since then, the largest first."""
    total = sa.func.sum(usage.c.gpu_hours)
    query = (
        sa.select(usage.c.team, usage.c.sku, total.label("hours"))
        .join(attempts, attempts.c.id == usage.c.attempt_id)
        .where(attempts.c.started_at >= since)
        .group_by(usage.c.team, usage.c.sku)
        .order_by(total.desc())
        .limit(MOST_TEAMS)
    )
    return [(row["team"], row["sku"], row["hours"]) for row in history.select(query) if row["hours"]]


def thinned_steps(history: History, attempt_id: str, most: int) -> list[dict[str, Any]]:
    """At most about `most` steps of an attempt, evenly spread, with the last one."""
    own = steps.c.attempt_id == attempt_id
    span = history.select(sa.select(sa.func.count().label("n"), sa.func.max(steps.c.step).label("last")).where(own))[0]
    if not span["n"]:
        return []
    stride = max(1, -(-span["n"] // most))
    kept = sa.or_(steps.c.step % stride == 0, steps.c.step == span["last"]) if stride > 1 else sa.true()
    return history.select(sa.select(steps).where(own, kept).order_by(steps.c.step))


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


def with_facts(history: History, rows: Sequence[Mapping[str, Any]]) -> list[PastRun]:
    """Rows of jobs with the facts of their attempts and usage, which two queries bring for all of them."""
    ids = [row["id"] for row in rows]
    if not ids:
        return []
    attempt = attempts.c
    chosen = sa.select(attempt.job_id, attempt.task, attempt.kind, attempt.failure).where(attempt.job_id.in_(ids))
    tasks: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    failures: dict[str, str] = {}
    most = MOST_COUNTED  # of imported sources, which hold thousands of attempts
    for row in history.select(chosen.order_by(attempt.started_at).limit(most)):
        if "/" not in row["task"]:
            tasks.setdefault(row["job_id"], {})[row["task"]] = row["kind"]
        counts[row["job_id"]] = counts.get(row["job_id"], 0) + 1
        failures[row["job_id"]] = row["failure"] or failures.get(row["job_id"], "")
    hours = {
        row["job_id"]: row["hours"]
        for row in history.select(
            sa.select(attempt.job_id, sa.func.sum(usage.c.gpu_hours).label("hours"))
            .join(usage, usage.c.attempt_id == attempt.id)
            .where(attempt.job_id.in_(ids))
            .group_by(attempt.job_id)
        )
    }
    return [
        PastRun(
            **{name: row[name] for name in _JOB},
            tasks=tasks.get(row["id"], {}),
            attempts=counts.get(row["id"], 0),
            gpu_hours=hours.get(row["id"]) or 0.0,
            failure=failures.get(row["id"], ""),
        )
        for row in rows
    ]


def _conditions(wanted: Filter) -> list[sa.ColumnElement[bool]]:
    job = jobs.c
    found: list[sa.ColumnElement[bool]] = [] if wanted.imported else [job.namespace != IMPORTED]
    if "\0" in f"{wanted.text}{wanted.status}{wanted.team}":  # PostgreSQL has no such text
        return [sa.false()]
    if wanted.text:
        found.append(sa.or_(job.name.icontains(wanted.text, autoescape=True), job.id.startswith(wanted.text.lower(), autoescape=True)))
    if wanted.status:
        found.append(job.status == wanted.status)
    if wanted.team:
        found.append(job.team == wanted.team)
    return found


def _midnight(now: datetime) -> datetime:
    local = now.astimezone()
    return local.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
