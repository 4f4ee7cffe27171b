"""Run history in SQL: SQLite on one machine, PostgreSQL for a company. Opening it brings the schema up to date."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tuneyard.api import BadInput, StorageError
from tuneyard.api.secrets import redact
from tuneyard.tracking import tables
from tuneyard.tracking.hub_rows import JobRows, record, upsert
from tuneyard.tracking.past import (
    MOST_POINTS,
    By,
    JobFilter,
    Page,
    PastJob,
    attempts_of,
    count_of,
    last_ended,
    page_of,
    series_of,
    training_runs_of,
    usage_of_period,
)
from tuneyard.tracking.retention import close_gone, remove_series, thin_series
from tuneyard.tracking.tables import IMPORTED

LOCK_WAIT_S = 10
"""How long one statement waits for another process that writes."""
_URL_FORMS = "write sqlite:////PATH or postgresql+psycopg://USER@HOST/DB"
_MIGRATION_LOCK = 7_402_113
"""Any number, the same everywhere: the key of PostgreSQL's advisory lock."""


def default_url() -> str:
    """TUNEYARD_HISTORY_URL, or a SQLite file in the user's data folder."""
    if url := os.environ.get("TUNEYARD_HISTORY_URL"):
        return url
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return f"sqlite:///{data / 'tuneyard' / 'history.db'}"


def has_history() -> bool:
    """True if there is a history to read. A missing SQLite file is none."""
    try:
        url = sa.make_url(default_url())
    except ArgumentError:
        return True  # `open` says what is wrong with it
    return url.get_backend_name() != "sqlite" or (url.database is not None and Path(url.database).exists())


_SAME = ("settings", "result", "failure")
"""Two runs of one source with these values are the same run."""


@dataclass(frozen=True)
class Insert:
    """A new row."""

    table: sa.Table
    values: dict[str, Any]


@dataclass(frozen=True)
class Update:
    """New values for the row with that `id`."""

    table: sa.Table
    id: str
    values: dict[str, Any]


class History:
    """Run history in one database. Made by `History.open`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str | None = None) -> History:
        """Connect and bring the schema up to date; two processes may do so at once.

        Raises BadInput for a URL that names no known database, StorageError where it cannot be reached.
        """
        engine = _engine(url or default_url())
        shown = engine.url.render_as_string(hide_password=True)
        try:
            with _migration_lock(engine) as connection:
                config = Config()
                config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise StorageError(f"history at {shown} was written by a newer Tuneyard: {error}", "update Tuneyard") from error
        except (SQLAlchemyError, OSError) as error:
            reason = redact(str(getattr(error, "orig", None) or error)).strip().splitlines()[0]
            raise StorageError(
                f"cannot open history at {shown}: {reason}", "check TUNEYARD_HISTORY_URL and that the database is up and writable"
            ) from error
        return cls(engine)

    def write(self, changes: Sequence[Insert | Update]) -> None:
        """Apply changes in one transaction. Raises sqlalchemy.exc.SQLAlchemyError; then none was applied.

        Writing twice has the effect of writing once: a caller that lost the connection tries again.
        """
        with self._engine.begin() as connection:
            for change, rows in _grouped(changes):
                if isinstance(change, Insert):
                    connection.execute(upsert(connection, change.table), rows)
                else:
                    connection.execute(change.table.update().where(change.table.c.id == change.id).values(change.values))

    def record(self, jobs: Sequence[JobRows], now: datetime) -> None:
        """Write all rows of jobs of a hub in one transaction. Rows of an older version of a JobSpec than is recorded are left out.

        Writing twice, in any order, has the effect of writing the newest version once. Raises sqlalchemy.exc.SQLAlchemyError.
        """
        with self._engine.connect() as connection:
            record(connection, jobs, now)

    def tidy(self, now: datetime, thin_days: float, series_days: float) -> int:
        """One bounded step of retention (`retention`); 0 days: never. Returns the number of attempts that it has looked at."""
        looked_at = 0
        for days, step in ((series_days, remove_series), (thin_days, thin_series)):
            if days and not looked_at:
                with self._engine.begin() as connection:
                    looked_at = step(connection, now - timedelta(days=days))
        return looked_at

    def close_gone(self, hub: str, present: Set[str]) -> None:
        """End recorded jobs of a hub whose JobSpec has vanished without its record. `present`: uids of the JobSpecs that exist."""
        after: str | None = ""
        while after is not None:
            with self._engine.begin() as connection:
                after = close_gone(connection, hub, present, after) or None

    def marks(self, job_ids: Sequence[str]) -> dict[str, str]:
        """The mark of each recorded job of `job_ids`."""
        job = tables.jobs.c
        return {row["id"]: row["mark"] for row in self._rows(sa.select(job.id, job.mark).where(job.id.in_(job_ids)))}

    def jobs(self, limit: int = 50, *, team: str | None = None) -> list[PastJob]:
        """Jobs, the newest first. Imported runs are listed for their team alone."""
        return list(self.page(JobFilter(team=team), limit).jobs)

    def page(self, wanted: JobFilter, limit: int = 50, after: str = "") -> Page:
        """One page of the jobs that are wanted, the newest first. Raises BadInput for an `after` that no page has given."""
        with self._engine.connect() as connection:
            return page_of(connection, wanted, limit, after)

    def last_ended(self, wanted: JobFilter, limit: int) -> list[PastJob]:
        """The jobs that ended last, the latest end first."""
        with self._engine.connect() as connection:
            return last_ended(connection, wanted, limit)

    def count(self, wanted: JobFilter) -> int:
        """The number of jobs, `past.MOST_COUNTED` + 1 at most."""
        with self._engine.connect() as connection:
            return count_of(connection, wanted)

    def find(self, name: str, wanted: JobFilter | None = None) -> PastJob | None:
        """The job of an id, or the newest job of a name; None if there is none."""
        wanted = wanted or JobFilter()
        with self._engine.connect() as connection:
            found = page_of(connection, replace(wanted, id=name), 1).jobs or page_of(connection, replace(wanted, name=name), 1).jobs
        return found[0] if found else None

    def spec(self, job: PastJob) -> dict[str, Any]:
        """The JobSpec of a job, without secrets; empty for imported runs."""
        rows = self._rows(sa.select(tables.jobs.c.spec).where(tables.jobs.c.id == job.id))
        return rows[0]["spec"] if rows and isinstance(rows[0]["spec"], dict) else {}

    def detail(self, job: PastJob) -> dict[str, Any]:
        """A job with its `spec` (without secrets) and its `attempts`, each with `scores`, `series` (thinned) and `evaluations`."""
        measured = {"series": self.series, "evaluations": self.evaluations}
        attempts = [{**attempt, **{name: read(attempt["id"]) for name, read in measured.items()}} for attempt in self.attempts(job.id)]
        return {**asdict(job), "spec": self.spec(job), "attempts": attempts}

    def usage(
        self, since: datetime, until: datetime, by: Sequence[By] = ("team", "sku"), wanted: JobFilter | None = None
    ) -> list[dict[str, Any]]:
        """GPU-hours and cost of a period, a row per group (`past.usage_of_period`)."""
        with self._engine.connect() as connection:
            return usage_of_period(connection, since, until, by, wanted)

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        """Attempts of a job in the order in which they started, each with its `scores`, `gpu_hours` and `cost`."""
        with self._engine.connect() as connection:
            return attempts_of(connection, job_id)

    def training_runs(self) -> list[dict[str, Any]]:
        """Ended train attempts whose settings are known, oldest first: `settings`, `status`, `failure`, `result`, `origin` of the job."""
        job, attempt = tables.jobs.c, tables.attempts.c
        query = (
            sa.select(attempt.settings, attempt.status, attempt.failure, attempt.result, job.origin)
            .join(tables.jobs, job.id == attempt.job_id)
            .where(attempt.kind == "train", attempt.ended_at.is_not(None))
            .order_by(attempt.started_at, attempt.id)
        )
        return [row for row in self._rows(query) if row["settings"]]

    def score_runs(self) -> list[dict[str, Any]]:
        """Score attempts that have succeeded, oldest first: `job`, `task`, `result`, and the `spec` of the job."""
        job, attempt = tables.jobs.c, tables.attempts.c
        query = (
            sa.select(job.name.label("job"), job.spec, attempt.task, attempt.result)
            .join(tables.jobs, job.id == attempt.job_id)
            .where(attempt.kind == "score", attempt.status == "succeeded")
            .order_by(attempt.started_at, attempt.id)
        )
        return self._rows(query)

    def program_runs(self) -> list[dict[str, Any]]:
        """Train attempts of programs that have succeeded, oldest first: `job`, `task`, `plan`, `result`, and the `spec` of the job."""
        job, attempt = tables.jobs.c, tables.attempts.c
        query = (
            sa.select(job.name.label("job"), job.spec, attempt.task, attempt.plan, attempt.result)
            .join(tables.jobs, job.id == attempt.job_id)
            .where(attempt.kind == "train", attempt.status == "succeeded")
            .order_by(attempt.started_at, attempt.id)
        )
        return [row for row in self._rows(query) if ((row["result"] or {}).get("details") or {}).get("program")]

    def training_page(self, wanted: JobFilter, limit: int, after: str = "") -> tuple[list[dict[str, Any]], str]:
        """One page of such runs of the jobs that are wanted, the newest first, with where they ran (`past.training_runs_of`)."""
        with self._engine.connect() as connection:
            return training_runs_of(connection, wanted, limit, after)

    def add_training_runs(self, runs: Sequence[Mapping[str, Any]], at: datetime) -> int:
        """Keep runs of others (`tuning.published_runs`), a job for each source. Known runs stay. Returns the number of new ones."""
        sources = {_digest("source", source): source for source in dict.fromkeys(run["source"] for run in runs)}
        attempts = {_digest(run["source"], json.dumps([run[name] for name in _SAME], sort_keys=True, default=str)): run for run in runs}
        of_sources = tables.attempts.c.job_id.in_(list(sources))
        known = {row["id"] for row in self._rows(sa.select(tables.attempts.c.id).where(of_sources))}
        new = {key: run for key, run in attempts.items() if key not in known}
        touched = {run["source"] for run in new.values()}
        of_others = {
            "origin": IMPORTED,
            "namespace": IMPORTED,
            "team": IMPORTED,
            "status": "succeeded",
            "message": "",
            "output": "",
            "spec": {},
        }
        changes = [
            Insert(tables.jobs, {"id": key, "name": source, **of_others, "started_at": at, "ended_at": at})
            for key, source in sources.items()
            if source in touched
        ]
        self.write([*changes, *(_imported(key, run, at) for key, run in new.items())])
        return len(new)

    def steps(self, attempt_id: str) -> list[dict[str, Any]]:
        """Steps of an attempt, in order."""
        return self._rows(tables.steps.select().where(tables.steps.c.attempt_id == attempt_id).order_by(tables.steps.c.step))

    def series(self, attempt_id: str, most: int = MOST_POINTS) -> list[dict[str, Any]]:
        """Steps of an attempt, thinned to about `most`."""
        with self._engine.connect() as connection:
            return series_of(connection, attempt_id, most)

    def evaluations(self, attempt_id: str) -> list[dict[str, Any]]:
        """Evaluations of an attempt, in order."""
        return self._rows(
            tables.evaluations.select().where(tables.evaluations.c.attempt_id == attempt_id).order_by(tables.evaluations.c.step)
        )

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        return self.select(query)

    def select(self, query: sa.Executable) -> list[dict[str, Any]]:
        """The rows of a query that only its caller needs."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    @property
    def shown_url(self) -> str:
        """The database, without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self._engine.dispose()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def check_url(url: str) -> sa.URL:
    """A database URL, parsed. Raises BadInput for one that names no known database."""
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadInput("TUNEYARD_HISTORY_URL is not a database URL", _URL_FORMS) from error
    if backend not in ("sqlite", "postgresql"):
        raise BadInput(f"history cannot be kept in {backend}", _URL_FORMS)
    return parsed


def _engine(url: str) -> sa.Engine:
    parsed = check_url(url)
    if parsed.get_backend_name() == "postgresql":
        # psycopg 3 is the driver that is installed; plain postgresql:// would ask for psycopg2.
        parsed = parsed.set(drivername="postgresql+psycopg")
        times = {"lock_timeout": LOCK_WAIT_S, "statement_timeout": 6 * LOCK_WAIT_S, "idle_in_transaction_session_timeout": 6 * LOCK_WAIT_S}
        limits = {
            "connect_timeout": LOCK_WAIT_S,
            "tcp_user_timeout": 3000 * LOCK_WAIT_S,  # ms: a server that has vanished without a word, while it was written to
            "keepalives_idle": LOCK_WAIT_S,  # … or while its answer was waited for
            "keepalives_interval": LOCK_WAIT_S,
            "keepalives_count": 2,
            "options": " ".join(f"-c {name}={seconds}s" for name, seconds in times.items()),
        }
        return sa.create_engine(parsed, pool_size=2, pool_pre_ping=True, connect_args=limits)
    return _sqlite(parsed)


def _sqlite(url: sa.URL) -> sa.Engine:
    if url.database and url.database != ":memory:":
        path = Path(url.database).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot keep history in {path}: {error.strerror}", "set TUNEYARD_HISTORY_URL to another place") from error
        url = url.set(database=str(path))
    engine = sa.create_engine(url, connect_args={"timeout": LOCK_WAIT_S})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # WAL: readers and one writer do not wait for each other. NORMAL: a power cut may lose the last rows, never the file.
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @sa.event.listens_for(engine, "handle_error")
    def _let_go(context: sa.engine.ExceptionContext) -> None:
        # An open connection would stay with the broken file after another one was put in its place.
        code = getattr(context.original_exception, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            context.is_disconnect = True

    return engine


@contextmanager
def _migration_lock(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection inside a transaction; of several processes, one at a time has it."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            # Ends with the transaction, whatever happens to this process.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # a migration of millions of rows takes minutes
            yield connection
        return
    with open(f"{engine.url.database}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with engine.begin() as connection:
            yield connection


def _grouped(changes: Sequence[Insert | Update]) -> Iterator[tuple[Insert | Update, list[dict[str, Any]]]]:
    """Successive inserts into one table become one statement."""
    rows: list[dict[str, Any]] = []
    for index, change in enumerate(changes):
        rows.append(change.values)
        following = changes[index + 1] if index + 1 < len(changes) else None
        if isinstance(change, Insert) and isinstance(following, Insert) and following.table is change.table:
            continue
        yield change, rows
        rows = []


def _imported(key: str, run: Mapping[str, Any], at: datetime) -> Insert:
    """The row of an attempt of others."""
    settings = run["settings"]
    told = {name: run[name] for name in ("status", "failure", "result", "settings")}
    place = {"sku": str(settings.get("gpu_type") or "")[:63], "workers": int(settings.get("gpus") or 1), "plan": None}
    of_job = {"job_id": _digest("source", run["source"]), "task": "run", "kind": "train", "number": 1, "message": ""}
    return Insert(tables.attempts, {"id": key, **of_job, **told, **place, "started_at": at, "ended_at": at})
