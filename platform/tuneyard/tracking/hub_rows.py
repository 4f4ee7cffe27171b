"""The rows of a hub's jobs, and their way into the tables: exactly once, by keys that follow from the JobSpec alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tuneyard.tracking import tables

Row = dict[str, Any]
_RECORD_LOCK = 7_402_114
"""The key of PostgreSQL's advisory lock for writers of hubs: a killed hub may still write while the next one leads."""
_LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class JobRows:
    """All rows of one job, made from one version of its JobSpec."""

    job: Row
    attempts: tuple[Row, ...] = ()
    usage: tuple[Row, ...] = ()
    scores: tuple[Row, ...] = ()
    steps: tuple[Row, ...] = ()
    """A sample of progress. It is no part of the mark."""

    @cached_property
    def mark(self) -> str:
        """Digest of the rows: equal rows need not be written again."""
        told = {name: value for name, value in self.job.items() if name != "version"}
        text = json.dumps([told, self.attempts, self.usage, self.scores], sort_keys=True, default=str)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def key_of(*parts: object) -> str:
    """The id of a row: the same parts, the same id."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]


def fitted(table: sa.Table, row: Mapping[str, Any]) -> Row:
    """`row` with values that every database takes: texts cut to their columns and without NUL, finite numbers within their range."""
    return {name: _fitted(table.c[name].type, value) for name, value in row.items()}


def _fitted(kind: sa.types.TypeEngine[Any], value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        plain = value.replace("\0", " ").encode(errors="replace").decode()
        return plain[: kind.length] if isinstance(kind, sa.String) and kind.length else plain
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and type(kind) is sa.Integer:
        return max(-_LARGEST_INTEGER, min(_LARGEST_INTEGER, value))
    if isinstance(value, Mapping):
        return {str(_fitted(sa.Text(), str(name))): _fitted(sa.Text(), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fitted(sa.Text(), item) for item in value]
    return value


def upsert(connection: sa.Connection, table: sa.Table, columns: Sequence[str] = ()) -> sqlite.Insert | postgresql.Insert:
    """An insert that replaces the row of the same key. `columns`: what it replaces; empty: all."""
    insert: sqlite.Insert | postgresql.Insert
    insert = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    names = [column.name for column in table.columns if not column.primary_key and (not columns or column.name in columns)]
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_={name: insert.excluded[name] for name in names})


def record(connection: sa.Connection, jobs: Sequence[JobRows], now: datetime) -> None:
    """Write `jobs` in one transaction; those of which a newer version is recorded are left out."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_RECORD_LOCK)))
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # pysqlite would begin at the first write, after the versions were read
    try:
        known = _versions(connection, [rows.job["id"] for rows in jobs])
        fresh = {rows.job["id"]: rows for rows in jobs if rows.job["version"] >= known.get(rows.job["id"], -1)}.values()
        marked = [{**rows.job, "mark": rows.mark, "recorded_at": now} for rows in fresh]
        _put(connection, tables.jobs, marked)
        _put(connection, tables.attempts, [{**row, "retention": tables.WHOLE} for rows in fresh for row in rows.attempts])
        for table in ("usage", "scores", "steps"):
            _put(connection, tables.metadata.tables[table], [row for rows in fresh for row in getattr(rows, table)])
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _versions(connection: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    job = tables.jobs.c
    return {row.id: row.version for row in connection.execute(sa.select(job.id, job.version).where(job.id.in_(ids)))}


def _put(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Write rows; each replaces the columns that it has."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(row), []).append(fitted(table, row))
    for columns, those in alike.items():
        connection.execute(upsert(connection, table, columns), those)
