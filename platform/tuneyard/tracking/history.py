"""Run history in SQL: SQLite on one machine, PostgreSQL for a company. Opening it brings the schema up to date."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tuneyard.api import BadInput, StorageError
from tuneyard.api.secrets import redact
from tuneyard.tracking import tables

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


IMPORTED = "imported"
"""Namespace and team of runs of others."""
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


@dataclass(frozen=True)
class PastJob:
    """A row of `tuneyard history list`."""

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
                    connection.execute(self._upsert(change.table), rows)
                else:
                    connection.execute(change.table.update().where(change.table.c.id == change.id).values(change.values))

    def _upsert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        insert: sqlite.Insert | postgresql.Insert
        insert = postgresql.insert(table) if self._engine.dialect.name == "postgresql" else sqlite.insert(table)
        new = {column.name: insert.excluded[column.name] for column in table.columns if not column.primary_key}
        return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)

    def jobs(self, limit: int = 50, *, team: str | None = None) -> list[PastJob]:
        """Jobs, the newest first. Imported runs are listed for their team alone."""
        job, attempt, usage = tables.jobs.c, tables.attempts.c, tables.usage.c
        query = (
            sa.select(
                *[job[name] for name in ("id", "name", "team", "status", "message", "output", "started_at", "ended_at")],
                sa.func.count(attempt.id).label("attempts"),
                sa.func.coalesce(sa.func.sum(usage.gpu_hours), 0.0).label("gpu_hours"),
            )
            .outerjoin(tables.attempts, attempt.job_id == job.id)
            .outerjoin(tables.usage, usage.attempt_id == attempt.id)
            .group_by(job.id)
            .order_by(job.started_at.desc())
            .limit(limit)
        )
        query = query.where(job.team == team if team is not None else job.namespace != IMPORTED)
        return [PastJob(**row) for row in self._rows(query)]

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        """Attempts of a job, in the order in which they started."""
        return self._rows(tables.attempts.select().where(tables.attempts.c.job_id == job_id).order_by(tables.attempts.c.started_at))

    def training_runs(self) -> list[dict[str, Any]]:
        """Ended train attempts whose settings are known, oldest first: `settings`, `status`, `failure`, `result`."""
        attempt = tables.attempts.c
        query = (
            sa.select(attempt.settings, attempt.status, attempt.failure, attempt.result)
            .where(attempt.kind == "train", attempt.ended_at.is_not(None))
            .order_by(attempt.started_at, attempt.id)
        )
        return [row for row in self._rows(query) if row["settings"]]

    def add_training_runs(self, runs: Sequence[Mapping[str, Any]], at: datetime) -> int:
        """Keep runs of others (`tuning.published_runs`), a job for each source. Known runs stay. Returns the number of new ones."""
        sources = {_digest("source", source): source for source in dict.fromkeys(run["source"] for run in runs)}
        attempts = {_digest(run["source"], json.dumps([run[name] for name in _SAME], sort_keys=True, default=str)): run for run in runs}
        of_sources = tables.attempts.c.job_id.in_(list(sources))
        known = {row["id"] for row in self._rows(sa.select(tables.attempts.c.id).where(of_sources))}
        new = {key: run for key, run in attempts.items() if key not in known}
        touched = {run["source"] for run in new.values()}
        of_others = {"namespace": IMPORTED, "team": IMPORTED, "status": "succeeded", "message": "", "output": "", "spec": {}}
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


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadInput("TUNEYARD_HISTORY_URL is not a database URL", _URL_FORMS) from error
    if backend == "sqlite":
        return _sqlite(parsed)
    if backend == "postgresql":
        # psycopg 3 is the driver that is installed; plain postgresql:// would ask for psycopg2.
        parsed = parsed.set(drivername="postgresql+psycopg")
        limits = {"connect_timeout": LOCK_WAIT_S, "options": f"-c lock_timeout={LOCK_WAIT_S}s -c statement_timeout={6 * LOCK_WAIT_S}s"}
        return sa.create_engine(parsed, pool_size=2, pool_pre_ping=True, connect_args=limits)
    raise BadInput(f"history cannot be kept in {backend}", _URL_FORMS)


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

    return engine


@contextmanager
def _migration_lock(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection inside a transaction; of several processes, one at a time has it."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            # Ends with the transaction, whatever happens to this process.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
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
