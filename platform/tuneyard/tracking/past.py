"""Queries over run history: jobs page by page, one job with its attempts, usage of a period. Each works on SQLite and PostgreSQL.

Usage is counted from the time for which each attempt held its GPUs, cut to the period that is asked for: an attempt over midnight counts in
both months, and a row that is written twice counts once. What endpoints have charged for an attempt counts at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from tuneyard.api import BadInput
from tuneyard.tracking import tables
from tuneyard.tracking.name_patterns import WILDCARDS, has_pattern

ENDED = ("succeeded", "failed", "cancelled")
MOST_COUNTED = 10_000
"""A larger number of jobs is not counted to its end."""
MOST_POINTS = 500
"""Most points of a series that one answer has."""
By = Literal["team", "user", "sku", "namespace", "job", "cluster", "month"]
_A_MONTH = timedelta(days=31)
_COST, _COST_BESIDE_GPUS = "cost", "embedding_cost"
"""Figures of a score task by earlier versions, which knew no charge of an attempt: without GPUs, endpoints have charged all of its cost."""


@dataclass(frozen=True)
class PastJob:
    """A row of `tuneyard history list`. `started_at`: on a hub, when it was submitted; `placed_at`: when its first attempt was placed.

    `tasks`: kinds by name, in the order in which they started, without trials of a search. `failure`: kind of the last failed attempt.
    """

    id: str
    name: str
    team: str
    status: str
    message: str
    output: str
    started_at: datetime
    ended_at: datetime | None
    attempts: int
    gpu_hours: float
    namespace: str = ""
    origin: str = tables.LOCAL
    uid: str = ""
    user: str = ""
    placed_at: datetime | None = None
    cost: float = 0.0
    tasks: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def imported(self) -> bool:
        return self.namespace == tables.IMPORTED

    def took_s(self, now: datetime) -> float:
        """Seconds from its start to its end, or to `now`."""
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs; None: any. `hub`: the hub that recorded them, "" for local runs. `user`: who submitted them. `names`: a pattern for
    names, in which `*` stands for any characters and `?` for one.

    `since` and `until` are a person's question; `made_since` is the moment from which on jobs belong to the namespace.

    `text`: a part of the name in either case, or the start of an id. Imported runs are left out unless `imported`, or unless `origin`,
    `team`, `name` or `id` are given.
    """

    hub: str | None = None
    namespace: str | None = None
    team: str | None = None
    user: str | None = None
    status: str | None = None
    name: str | None = None
    names: str | None = None
    id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    made_since: datetime | None = None
    origin: str | None = None
    text: str | None = None
    ended_since: datetime | None = None
    imported: bool = False

    @classmethod
    def asked(cls, name: str | None, **values: Any) -> JobFilter:
        """A filter of a person, whose `name` may be a pattern such as `nightly-*`."""
        is_pattern = name is not None and bool(set(name) & {*WILDCARDS})
        return cls(name=None if is_pattern else name, names=name if is_pattern else None, **values)

    def conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        job = tables.jobs.c
        equal = {
            job.hub: self.hub,
            job.namespace: self.namespace,
            job.team: self.team,
            job.submitted_by: self.user,
            job.status: self.status,
            job.name: self.name,
            job.id: self.id,
            job.origin: self.origin,
        }
        if any("\0" in (text or "") for text in (*equal.values(), self.text, self.names)):
            yield sa.false()  # no row has such a text, and PostgreSQL refuses it
            return
        for column, wanted in equal.items():
            if wanted is not None:
                yield column == wanted
        if self.names is not None:
            yield has_pattern(job.name, self.names)
        if self.text:
            yield sa.or_(job.name.icontains(self.text, autoescape=True), job.id.startswith(self.text.lower(), autoescape=True))
        if self.since is not None:
            yield job.started_at >= self.since
        if self.made_since is not None:
            yield job.started_at >= self.made_since
        if self.until is not None:
            yield job.started_at < self.until
        if self.ended_since is not None:
            yield job.ended_at >= self.ended_since
        if not self.imported and (self.origin, self.team, self.name, self.id) == (None, None, None, None):
            yield sa.or_(job.origin == tables.ON_HUB, job.namespace != tables.IMPORTED)


@dataclass(frozen=True)
class Page:
    """`after`: where the next page begins; empty on the last one."""

    jobs: tuple[PastJob, ...]
    after: str = ""


_SHOWN = ("id", "name", "team", "status", "message", "output", "started_at", "ended_at", "namespace", "origin", "uid", "placed_at")


def page_of(connection: sa.Connection, wanted: JobFilter, limit: int, after: str = "") -> Page:
    """The newest jobs first. Raises BadInput for an `after` that no page has given."""
    job = tables.jobs.c
    query = _chosen(wanted).order_by(job.started_at.desc(), job.id.desc()).limit(limit + 1)
    if after:
        moment, key = _place(after)
        query = query.where(job.started_at <= moment, sa.or_(job.started_at < moment, job.id < key))
    rows = connection.execute(query).mappings().all()
    found = _with_attempts(connection, rows[:limit])
    return Page(tuple(found), _cursor_at(found[-1].started_at, found[-1].id) if len(rows) > limit else "")


def last_ended(connection: sa.Connection, wanted: JobFilter, limit: int) -> list[PastJob]:
    """The jobs that ended last, the latest end first."""
    query = _chosen(wanted).where(tables.jobs.c.ended_at.is_not(None)).order_by(tables.jobs.c.ended_at.desc()).limit(limit)
    return _with_attempts(connection, connection.execute(query).mappings().all())


def count_of(connection: sa.Connection, wanted: JobFilter) -> int:
    """The number of jobs, MOST_COUNTED + 1 at most."""
    some = sa.select(sa.literal(1)).select_from(tables.jobs).where(*wanted.conditions()).limit(MOST_COUNTED + 1).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()


def _chosen(wanted: JobFilter) -> sa.Select[Any]:
    job = tables.jobs.c
    return sa.select(*[job[name] for name in _SHOWN], job.submitted_by.label("user")).where(*wanted.conditions())


def _with_attempts(connection: sa.Connection, rows: Sequence[Mapping[Any, Any]]) -> list[PastJob]:
    """Jobs with sums over their attempts, which one query brings for all of them."""
    attempt, usage = tables.attempts.c, tables.usage.c
    groups = (attempt.job_id, attempt.task, attempt.kind, attempt.failure)
    query = (
        sa.select(
            *groups,
            sa.func.count().label("attempts"),
            sa.func.min(attempt.started_at).label("first"),
            sa.func.max(attempt.started_at).label("last"),
            sa.func.coalesce(sa.func.sum(usage.gpu_hours), 0.0).label("gpu_hours"),
            sa.func.coalesce(sa.func.sum(usage.cost), 0.0).label("cost"),
        )
        .outerjoin(tables.usage, usage.attempt_id == attempt.id)
        .where(attempt.job_id.in_([row["id"] for row in rows]))
        .group_by(*groups)
    )
    of_jobs: dict[str, list[sa.RowMapping]] = {}
    for group in connection.execute(query).mappings() if rows else ():
        of_jobs.setdefault(group["job_id"], []).append(group)
    return [_past_job(row, of_jobs.get(row["id"], ())) for row in rows]


def _past_job(row: Mapping[Any, Any], groups: Sequence[sa.RowMapping]) -> PastJob:
    """`groups`: attempts of the job, summed by task, kind and failure. Those with a slash are trials of a search."""
    begun = sorted((group for group in groups if "/" not in group["task"]), key=lambda group: (group["first"], group["task"]))
    failed = [group for group in begun if group["failure"]]
    sums: dict[str, Any] = {name: sum(group[name] for group in groups) for name in ("gpu_hours", "cost")}
    return PastJob(
        **row,
        **sums,
        attempts=sum(group["attempts"] for group in begun),
        tasks={group["task"]: group["kind"] for group in begun},
        failure=max(failed, key=lambda group: group["last"])["failure"] if failed else "",
    )


def _cursor_at(moment: datetime, key: str) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{key}"


def _place(after: str) -> tuple[datetime, str]:
    moment, _, key = after.partition("-")
    try:
        return datetime.strptime(moment, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC), key.replace("\0", "")
    except ValueError:
        raise BadInput(f"{after[:60]!r} is not the end of a page", "begin without it") from None


def attempts_of(connection: sa.Connection, job_id: str) -> list[dict[str, Any]]:
    """Attempts of a job in the order in which they started, each with its `scores`, `gpu_hours` and `cost`."""
    attempt, usage = tables.attempts.c, tables.usage.c
    query = (
        sa.select(*(column for column in tables.attempts.columns if column.name != "retention"), usage.gpu_hours, usage.cost)
        .outerjoin(tables.usage, usage.attempt_id == attempt.id)
        .where(attempt.job_id == job_id)
        .order_by(attempt.started_at, attempt.number)
    )
    found = [dict(row) for row in connection.execute(query).mappings()]
    scores: dict[str, dict[str, float]] = {}
    of_job = sa.select(tables.scores).join(tables.attempts, attempt.id == tables.scores.c.attempt_id).where(attempt.job_id == job_id)
    for row in connection.execute(of_job).mappings():
        scores.setdefault(row["attempt_id"], {})[row["metric"]] = row["value"]
    return [row | {"scores": scores.get(row["id"], {})} for row in found]


def series_of(connection: sa.Connection, attempt_id: str, most: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Steps of an attempt in order: every n-th and the last, so that there are at most `most` + 1."""
    step = tables.steps.c
    number = sa.func.row_number().over(order_by=step.step).label("number")
    counted = sa.select(tables.steps, number, sa.func.count().over().label("total")).where(step.attempt_id == attempt_id).subquery()
    stride = (counted.c.total + (most - 1)) // most
    shown = [counted.c[column.name] for column in tables.steps.columns if column.name != "attempt_id"]
    query = (
        sa.select(*shown).where(sa.or_((counted.c.number - 1) % stride == 0, counted.c.number == counted.c.total)).order_by(counted.c.step)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def training_runs_of(connection: sa.Connection, wanted: JobFilter, limit: int, after: str = "") -> tuple[list[dict[str, Any]], str]:
    """Ended train attempts whose settings are known, the newest first, and where the next page begins. Raises BadInput."""
    job, attempt = tables.jobs.c, tables.attempts.c
    query = (
        sa.select(
            *(attempt[name] for name in ("id", "settings", "status", "failure", "result", "cluster", "started_at")),
            job.namespace,
            job.name.label("job"),
        )
        .join(tables.jobs, job.id == attempt.job_id)
        .where(*wanted.conditions(), attempt.kind == "train", attempt.ended_at.is_not(None), sa.cast(attempt.settings, sa.Text) != "null")
        .order_by(attempt.started_at.desc(), attempt.id.desc())
        .limit(limit + 1)
    )
    if after:
        moment, key = _place(after)
        query = query.where(attempt.started_at <= moment, sa.or_(attempt.started_at < moment, attempt.id < key))
    rows = [dict(row) for row in connection.execute(query).mappings()]
    more = len(rows) > limit
    return rows[:limit], _cursor_at(rows[limit - 1]["started_at"], rows[limit - 1]["id"]) if more else ""


class seconds_of(GenericFunction[float]):  # noqa: N801 - named as a function of SQL
    """Seconds since 1970 of a moment."""

    type = sa.Float()
    inherit_cache = True


@compiles(seconds_of, "postgresql")
def _of_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return f"CAST(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **options)}) AS DOUBLE PRECISION)"


@compiles(seconds_of, "sqlite")
def _of_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return f"((julianday({compiler.process(element.clauses, **options)}) - 2440587.5) * 86400.0)"


def usage_of_period(
    connection: sa.Connection, since: datetime, until: datetime, by: Sequence[By] = ("team", "sku"), wanted: JobFilter | None = None
) -> list[dict[str, Any]]:
    """GPU-hours and cost between two moments, a row per group, the largest first: the names in `by`, `jobs`, `gpu_hours`, `cost`, and
    `endpoint_cost`, which endpoints have charged for score tasks.

    `until` must not be in the future: attempts of a hub that have not ended count up to it. `wanted.since` and `wanted.until` are not used.
    """
    groups = [name for name in by if name != "month"]
    periods = list(months(since, until)) if "month" in by else [("", since, until)]
    rows = [
        {**({"month": month} if month else {}), **row}
        for month, begins, ends in periods
        for row in _usage_between(connection, begins, ends, groups, wanted or JobFilter())
    ]
    order = ["month", *groups] if "month" in by else groups
    return sorted(
        rows, key=lambda row: (row.get("month", ""), -row["gpu_hours"], -row["endpoint_cost"], *(str(row[name]) for name in order))
    )


def months(since: datetime, until: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """`2026-11` and its part of the period, for each month (UTC) that the period touches."""
    begins = since.astimezone(UTC)
    while begins < until:
        after = (begins.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + _A_MONTH).replace(day=1)
        yield f"{begins:%Y-%m}", begins, min(after, until)
        begins = after


def _usage_between(
    connection: sa.Connection, since: datetime, until: datetime, groups: Sequence[str], wanted: JobFilter
) -> Iterator[Mapping[str, Any]]:
    job = tables.jobs.c
    attempt = _attempts_between(since, until, first=wanted.namespace is None).c
    columns: dict[str, sa.ColumnElement[Any]] = {
        "team": job.team,
        "user": job.submitted_by,
        "sku": attempt.sku,
        "namespace": job.namespace,
        "job": job.namespace + "/" + job.name,
        "cluster": attempt.cluster,
    }
    begins, ends = sa.literal(since, tables.UtcDateTime), sa.literal(until, tables.UtcDateTime)
    # Of local runs that were killed, nobody writes the end.
    ended = sa.func.coalesce(attempt.ended_at, sa.case((job.origin == tables.ON_HUB, ends), else_=attempt.began))
    held = seconds_of(sa.case((ended < ends, ended), else_=ends)) - seconds_of(
        sa.case((attempt.began > begins, attempt.began), else_=begins)
    )
    hours = sa.case((held > 0, held), else_=0.0) * attempt.gpus / 3600.0
    shown = [columns[name].label(name) for name in groups]
    query = (
        sa.select(
            *shown,
            sa.func.count(job.id.distinct()).label("jobs"),
            sa.func.sum(hours).label("gpu_hours"),
            sa.func.sum(hours * attempt.price_per_gpu_hour).label("cost"),
            sa.func.sum(attempt.charged).label("endpoint_cost"),
        )
        .join(tables.jobs, job.id == attempt.job_id)
        .where(*replace(wanted, since=None, until=None).conditions())
        .group_by(*[columns[name] for name in groups])
        .having(sa.or_(sa.func.sum(hours) > 0, sa.func.sum(attempt.charged) > 0))
    )
    for row in connection.execute(query).mappings():
        yield dict(row)


def _attempts_between(since: datetime, until: datetime, *, first: bool) -> sa.CTE:
    """Attempts that held GPUs in a period, and when they `began` to; and endpoint tasks that ended in it, with what they have `charged`.

    Rows of earlier versions have no charge. There, an endpoint task is a score task that has succeeded, held no GPU and has a cost, or
    whose texts an endpoint embedded. `first`: SQLite looks for
    attempts before it looks for jobs. It would begin with all jobs, however short the period is. Of one namespace, the jobs are the
    shorter list.
    """
    attempt = tables.attempts.c
    began = sa.func.coalesce(attempt.placed_at, attempt.started_at)
    own = [attempt[name] for name in ("job_id", "sku", "cluster", "gpus", "price_per_gpu_hour", "ended_at")]
    holders = sa.select(*own, began.label("began"), sa.literal(0.0, sa.Float).label("charged")).where(
        attempt.gpus > 0, began < until, sa.or_(attempt.ended_at.is_(None), attempt.ended_at > since)
    )
    figure = sa.case((attempt.gpus == 0, _COST), else_=_COST_BESIDE_GPUS)
    charge = tables.scores.alias()
    is_known = sa.exists().where(charge.c.attempt_id == attempt.id, charge.c.metric == tables.CHARGED)
    ended_then = (attempt.kind == "score", attempt.ended_at >= since, attempt.ended_at < until)
    no_gpus = [sa.literal(0, sa.Integer).label("gpus") if each.name == "gpus" else each for each in own]  # `holders` count them
    amounts = sa.select(*no_gpus, began.label("began"), tables.scores.c.value.label("charged"))
    charges = amounts.join(tables.scores, sa.and_(tables.scores.c.attempt_id == attempt.id, tables.scores.c.metric == tables.CHARGED))
    costs = amounts.join(tables.scores, sa.and_(tables.scores.c.attempt_id == attempt.id, tables.scores.c.metric == figure))
    held = sa.union_all(holders, charges.where(*ended_then), costs.where(*ended_then, attempt.status == "succeeded", ~is_known)).cte("held")
    return held.prefix_with("MATERIALIZED", dialect="sqlite") if first else held
