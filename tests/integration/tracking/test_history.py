"""Run history on SQLite and on a real PostgreSQL: what a job leaves in it, and that a database in trouble never harms a job."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.builders.reports import make_job, tell, train_events, train_result
from tests.servers.installed import free_port
from tests.servers.tracked_job import run_forked

from tuneyard.api import BadInput, JobSpec, StorageError
from tuneyard.tracking import Evaluated, Event, History, Recorder, Step, TaskEvent, Warned, open_recorder, tables
from tuneyard.tracking.history_sink import HistorySink


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database, which is also the one that recorders use."""
    url = f"sqlite:///{tmp_path}/data/history.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", url)
    return url


def run_job(tmp_path: Path, job: JobSpec | None = None, events: Iterator[Event] | None = None) -> list[str]:
    """A whole job told to a recorder; the warnings that came of it."""
    warnings: list[str] = []

    def warn(event: Event) -> None:
        assert isinstance(event, Warned)
        warnings.append(event.message)

    recorder = open_recorder(job or make_job(), output="s3://models/support-bot", folder=tmp_path, warn=warn)
    tell(recorder, events or train_events())
    recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    recorder.close("succeeded")
    return warnings


def test_a_job_leaves_its_attempts_steps_and_usage(url: str, tmp_path: Path) -> None:
    assert run_job(tmp_path) == []

    history = History.open(url)
    (job,) = history.jobs()
    (attempt,) = history.attempts(job.id)
    steps = history.steps(attempt["id"])
    assert (job.name, job.team, job.status, job.attempts) == ("support-bot", "default", "succeeded", 1)
    assert job.ended_at is not None
    assert job.ended_at >= job.started_at
    assert (attempt["task"], attempt["status"], attempt["sku"], attempt["workers"]) == ("train", "succeeded", "h100-80gb", 4)
    assert attempt["plan"]["zero"] == 3
    assert attempt["result"]["mfu"] == 0.418
    assert [step["step"] for step in steps] == list(range(1, 121))
    assert steps[39]["checkpoint_s"] == 0.6
    assert [row["step"] for row in history.evaluations(attempt["id"])] == [40, 80, 120]
    assert job.gpu_hours > 0


def test_two_attempts_of_a_task_are_two_rows(url: str, tmp_path: Path) -> None:
    recorder = open_recorder(make_job(), output="out", folder=tmp_path)
    for attempt in (1, 2):
        recorder(TaskEvent(task="train", state="started", kind="train", attempt=attempt))
        recorder(TaskEvent(task="train", state="failed", kind="train", attempt=attempt, failure="OutOfMemory", message="no memory"))
    recorder.close("failed", "task train failed")

    history = History.open(url)
    (job,) = history.jobs()
    assert (job.status, job.message, job.attempts) == ("failed", "task train failed", 2)
    assert [(row["number"], row["failure"]) for row in history.attempts(job.id)] == [(1, "OutOfMemory"), (2, "OutOfMemory")]


def test_a_loss_that_is_no_number_and_a_repeated_evaluation_are_kept(url: str, tmp_path: Path) -> None:
    def events() -> Iterator[Event]:
        yield Step(
            task="train", step=1, of=2, loss=math.nan, learning_rate=1.0, tokens=1, step_s=1.0, tokens_per_s=1.0, mfu=math.inf, eta_s=0.0
        )
        yield Evaluated(task="train", step=1, loss=2.0)
        yield Evaluated(task="train", step=1, loss=1.5)

    assert run_job(tmp_path, events=events()) == []

    history = History.open(url)
    (attempt,) = history.attempts(history.jobs()[0].id)
    assert history.steps(attempt["id"])[0]["loss"] is None
    assert [row["loss"] for row in history.evaluations(attempt["id"])] == [1.5]


def test_no_secret_is_kept(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_environment_secret")
    job = make_job(env=[{"name": "API_TOKEN", "value": "written-secret"}], setup=["login hf_environment_secret"])

    run_job(tmp_path, job)

    with sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://")).connect() as connection:
        everything = str([list(connection.execute(table.select())) for table in tables.metadata.sorted_tables])
    assert "login ***" in everything
    assert "written-secret" not in everything
    assert "hf_environment_secret" not in everything


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    History.open(url).close()

    with sa.create_engine(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


def test_processes_that_open_a_new_database_at_once_all_succeed(url: str, tmp_path: Path) -> None:
    script = tmp_path / "open.py"
    script.write_text("import sys; from tuneyard.tracking import History; print(len(History.open(sys.argv[1]).jobs()))")

    def open_in_a_process(_: int) -> str:
        done = run_forked(str(script), url)
        return done.stdout.strip() + done.stderr

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(open_in_a_process, range(4))) == ["0"] * 4


def test_jobs_are_listed_newest_first_and_by_team(url: str, tmp_path: Path) -> None:
    for name, team in (("one", "maps"), ("two", "rides"), ("three", "maps")):
        run_job(tmp_path, make_job(name, team=team))

    history = History.open(url)
    assert [job.name for job in history.jobs()] == ["three", "two", "one"]
    assert [job.name for job in history.jobs(1, team="maps")] == ["three"]


# --- trouble


def test_a_locked_database_is_one_warning_and_nothing_is_lost_once_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{path}")
    monkeypatch.setattr("tuneyard.tracking.history.LOCK_WAIT_S", 0.5)
    monkeypatch.setattr("tuneyard.tracking.history_sink.RETRY_S", 0.2)
    History.open().close()
    tried = Semaphore(0)
    explain = HistorySink._explain
    monkeypatch.setattr(HistorySink, "_explain", lambda *arguments: (explain(*arguments), tried.release()))
    warnings: list[str] = []
    recorder = open_recorder(make_job(), output="out", folder=tmp_path, warn=lambda event: warnings.append(str(event)))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    began = time.monotonic()
    tell(recorder, train_events())
    assert time.monotonic() - began < 30, "120 events that wait for the lock take a minute"
    for _ in range(3):  # it tries again and again
        tried.acquire()
    other.execute("ROLLBACK")
    recorder.close("succeeded")

    assert len(warnings) == 1
    assert "locked" in warnings[0]
    (job,) = History.open().jobs()
    assert job.status == "succeeded"
    assert len(History.open().steps(History.open().attempts(job.id)[0]["id"])) == 120


@pytest.mark.parametrize("place", ["postgresql", "sqlite"])
def test_a_database_that_cannot_be_reached_is_a_warning(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    urls = {"postgresql": f"postgresql://u:top-secret@127.0.0.1:{free_port()}/none", "sqlite": f"sqlite:///{tmp_path}/file/x/history.db"}
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", urls[place])

    began = time.monotonic()
    warnings = run_job(tmp_path)

    assert time.monotonic() - began < 60
    assert any("run history is not written for now" in warning for warning in warnings)
    assert "top-secret" not in str(warnings)
    with pytest.raises(StorageError, match="history") as raised:
        History.open()
    assert "TUNEYARD_HISTORY_URL" in raised.value.next_step
    assert "top-secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://host/db", "no url at all"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(BadInput) as raised:
        History.open(url)
    assert "postgresql+psycopg://" in raised.value.next_step


def test_history_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path}/history.db")
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")

    run_job(tmp_path)

    assert not (tmp_path / "history.db").exists()


@pytest.mark.long  # what it takes is known on a quiet machine only
def test_recording_costs_training_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path}/history.db")
    recorder: Recorder = open_recorder(make_job(), output="out", folder=tmp_path)
    events = list(train_events(5_000))

    began = time.monotonic()
    tell(recorder, iter(events))
    per_event_s = (time.monotonic() - began) / len(events)
    recorder.close("succeeded")

    print(f"{1e6 * per_event_s:.0f} µs per event")
    assert per_event_s < 0.002
