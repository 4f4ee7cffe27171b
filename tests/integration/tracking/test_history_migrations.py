"""Databases of earlier versions, with rows in them: opened by this version, they keep every row, and earlier programs may still write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from tuneyard.tracking import History, tables
from tuneyard.tracking import history as history_module

BEGAN = datetime(2026, 10, 31, 23, 0, tzinfo=UTC)
JOB = """INSERT INTO jobs (id, name, namespace, team, status, message, output, spec, started_at)
VALUES (:id, :name, :namespace, 'maps', 'succeeded', '', '', '{}', :at)"""
ATTEMPT = """INSERT INTO attempts (id, job_id, task, kind, number, status, failure, message, sku, workers, started_at, ended_at)
VALUES (:id, :job, 'train', 'train', 1, 'succeeded', '', '', 'h100-80gb', 4, :at, :end)"""
USAGE = "INSERT INTO usage (attempt_id, team, sku, workers, seconds, gpu_hours) VALUES (:id, 'maps', 'h100-80gb', 4, 7200, 8)"
STEP = "INSERT INTO steps (attempt_id, step, loss) VALUES (:id, 1, 2.5)"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/history.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


def migrate(url: str, revision: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(history_module.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision) if revision != "0002-" else command.downgrade(config, "0002")
    engine.dispose()


def write_old_rows(url: str, key: str) -> None:
    """A job as programs of revisions 0001 and 0002 write it."""
    values: dict[str, Any] = {"id": key, "job": key, "name": "old", "namespace": "default", "at": BEGAN, "end": BEGAN + timedelta(hours=2)}
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in (JOB, ATTEMPT, USAGE, STEP):
            names = sa.text(statement)
            if connection.dialect.name == "sqlite":
                shown = {name: str(value.replace(tzinfo=None)) if isinstance(value, datetime) else value for name, value in values.items()}
                connection.execute(names, shown)
            else:
                connection.execute(names, values)
    engine.dispose()


def check(url: str, keys: set[str]) -> None:
    history = History.open(url)
    jobs = history.jobs()
    assert {job.id for job in jobs} == keys
    assert {(job.origin, job.attempts, job.gpu_hours, job.cost) for job in jobs} == {("local", 1, 8.0, 0.0)}
    (attempt,) = history.attempts(jobs[0].id)
    assert (attempt["placed_at"], attempt["scores"], [step["loss"] for step in history.steps(attempt["id"])]) == (None, {}, [2.5])
    history.close()


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004"])
def test_a_database_of_an_earlier_version_keeps_its_rows(url: str, revision: str) -> None:
    migrate(url, min(revision, "0002"))
    write_old_rows(url, "a")
    migrate(url, revision)

    check(url, {"a"})
    with sa.create_engine(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    usage = History.open(url).usage(BEGAN, BEGAN + timedelta(hours=2), ("month", "sku"))
    assert [(row["month"], round(row["gpu_hours"], 3)) for row in usage] == [("2026-10", 4.0), ("2026-11", 4.0)]


@pytest.mark.parametrize("revision", ["0003", "0004"])
def test_retention_takes_up_the_attempts_of_a_hub_of_an_earlier_version(url: str, revision: str) -> None:
    migrate(url, revision)
    write_old_rows(url, "a")
    write_old_rows(url, "b")
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("UPDATE jobs SET origin = 'hub' WHERE id = 'a'"))
    history = History.open(url)
    write_old_rows(url, "c")
    with sa.create_engine(url).begin() as connection:  # a hub of the earlier version that has not ended yet
        connection.execute(sa.text("UPDATE jobs SET origin = 'hub' WHERE id = 'c'"))

    now, looked_at = BEGAN + timedelta(days=100), 0
    while found := history.tidy(now, thin_days=7, series_days=90):
        looked_at += found
    assert looked_at == 2
    assert [len(history.steps(key)) for key in ("a", "b", "c")] == [0, 1, 0]


def test_a_program_of_an_earlier_version_writes_on_after_the_migration(url: str) -> None:
    migrate(url, "0002")
    write_old_rows(url, "a")
    History.open(url).close()

    write_old_rows(url, "b")

    check(url, {"a", "b"})


def test_the_migration_can_be_taken_back(url: str) -> None:
    migrate(url, "0002")
    write_old_rows(url, "a")
    History.open(url).close()

    migrate(url, "0002-")

    check(url, {"a"})
