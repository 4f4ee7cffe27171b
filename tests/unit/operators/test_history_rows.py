"""The rows of a job in run history: what they say, and that any order and repetition of writes leaves the newest."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tuneyard.api import Attempt, JobStatus, Phase, PlacementStatus, TaskStatus
from tuneyard.api.status import AttemptSummary, StepLoss
from tuneyard.cluster.history_api import USER
from tuneyard.federation import held_hours
from tuneyard.tracking import tables
from tuneyard.tracking.history import History
from tuneyard.tracking.hub_rows import JobRows, fitted
from tuneyard.tuning.history import history_frame
from tuneyard_operators.history.rows import DELETED, rows_of
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.usage import usage_of

START = datetime(2025, 11, 30, 23, 0, tzinfo=UTC)
PLACE = PlacementStatus(cluster="east", sku="h100-80gb", workers=8, gpus=8, pods=1, nodes={"n0": 8}, price_per_gpu_hour=2.5)


def jobspec(version: int = 1, **metadata: Any) -> dict[str, Any]:
    own = {"name": "leaf", "namespace": "maps", "uid": "u-1", "generation": 1, "creationTimestamp": written(START), **metadata}
    env = [{"name": "API_TOKEN", "value": "written-secret"}]
    spec = {"tasks": [{"name": "train", "train": {}}, {"name": "judge", "score": {}}], "env": env}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {**own, "resourceVersion": str(version)}, "spec": spec}


def moment(minutes: float) -> str:
    return written(START + timedelta(minutes=minutes))


def attempt(number: int, begins: float = 0, ends: float | None = None, **changes: Any) -> Attempt:
    phase = changes.pop("phase", Phase.RUNNING if ends is None else Phase.SUCCEEDED)
    ended = moment(ends) if ends is not None else None
    own = {
        "number": number,
        "task": "train",
        "token": number,
        "placement": PLACE,
        "placed_at": moment(begins),
        "started_at": moment(begins),
    }
    return Attempt(**{**own, "phase": phase, "ended_at": ended, **changes})


def status(*attempts: Attempt, phase: Phase = Phase.RUNNING, **changes: Any) -> JobStatus:
    task = TaskStatus(name="train", metrics={"rouge_l": 0.25, "note": "text", "broken": float("nan")})
    return JobStatus(phase=phase, attempts=list(attempts), tasks=[task], **changes)


def test_a_job_that_has_succeeded_says_where_it_ran_what_it_took_and_how_well() -> None:
    rows = rows_of(jobspec(annotations={USER: "ana"}), status(attempt(1, 0, 60), phase=Phase.SUCCEEDED, finished_at=moment(61)), "hub-1")

    assert (rows.job["status"], rows.job["team"], rows.job["submitted_by"], rows.job["hub"]) == ("succeeded", "maps", "ana", "hub-1")
    (row,) = rows.attempts
    assert (row["kind"], row["sku"], row["gpus"], row["cluster"], row["status"]) == ("train", "h100-80gb", 8, "east", "succeeded")
    assert [(score["metric"], score["value"]) for score in rows.scores] == [("rouge_l", 0.25)]
    assert rows.usage[0]["gpu_hours"] == pytest.approx(8.0)
    assert rows.usage[0]["cost"] == pytest.approx(20.0)
    assert "written-secret" not in json.dumps(rows.job["spec"])


def test_each_attempt_that_has_ended_is_charged_whatever_its_end() -> None:
    failed = attempt(1, 0, 5, phase=Phase.FAILED, failure="NodeLost", charged=0.5)
    rows = rows_of(jobspec(), status(failed, attempt(2, 6, 9, charged=0.0), attempt(3, 10, charged=2.0), attempt(4, 11, 12)))

    charged = {row["attempt_id"]: row["value"] for row in rows.scores if row["metric"] == tables.CHARGED}
    assert charged == {rows.attempts[0]["id"]: 0.5, rows.attempts[1]["id"]: 0.0}


def test_figures_belong_to_the_attempt_that_succeeded() -> None:
    failed = attempt(1, 0, 5, phase=Phase.FAILED, failure="NodeLost", message="gone")
    rows = rows_of(jobspec(), status(failed, attempt(2, 6, 9), phase=Phase.SUCCEEDED))

    assert {row["attempt_id"] for row in rows.scores} == {rows.attempts[1]["id"]}
    assert (rows.attempts[0]["failure"], rows.attempts[0]["message"], rows.attempts[0]["result"]) == ("NodeLost", "gone", None)


def test_the_tuner_learns_from_attempts_on_a_hub(database: Database) -> None:
    settings = {"params_b": 7.0, "gpus": 8.0, "framework": "tuneyard"}
    failed = attempt(1, 0, 5, phase=Phase.FAILED, failure="OutOfMemory", settings=settings)
    now = status(failed, attempt(2, 6, 9, settings=settings), phase=Phase.SUCCEEDED)
    now.tasks[0].metrics = {"tokens_per_s": 800.0, "peak_memory_gb": 61.5}
    database.clear()
    database.write([rows_of(jobspec(1), now)])
    forgotten = now.model_copy(update={"attempts": [failed.model_copy(update={"settings": {}}), now.attempts[1]]})
    database.write([rows_of(jobspec(2), forgotten)])

    runs = database.history.training_runs()

    assert [(run["settings"], run["failure"]) for run in runs] == [(settings, "OutOfMemory"), (settings, "")]
    frame = history_frame(runs)
    assert list(frame.status) == ["oom", "ok"]
    assert frame.tokens_per_sec_per_gpu[1] == 100.0
    assert frame.peak_mem_gb[1] == 61.5


def test_the_tuner_learns_from_the_trials_of_a_search_on_a_hub(database: Database) -> None:
    base = {"params_b": 7.0, "gpus": 8.0, "framework": "tuneyard", "micro_batch": 1}
    ran = {"number": 1, "settings": {}, "status": "succeeded", "tokens_per_s_per_gpu": 100.0}
    failed = {"number": 2, "settings": {"micro_batch": 8}, "status": "failed", "failure": "OutOfMemory"}
    wrong = [{"number": "3"}, {"number": 4, "settings": {}, "status": "weird"}, "text"]
    now = status(attempt(1, 0, 60, task="search"), phase=Phase.SUCCEEDED)
    now.tasks = [TaskStatus(name="search", metrics={"gain": 0.1, "learned": {"settings": base, "trials": [ran, failed, *wrong]}})]
    rows = rows_of(jobspec(), now)
    assert [(row["task"], row["kind"], row["gpus"]) for row in rows.attempts] == [
        ("search", "", 8),
        ("search/1", "train", 0),
        ("search/2", "train", 0),
    ]
    assert "learned" not in rows.attempts[0]["result"]
    assert len(rows.usage) == 1, "the search holds the GPUs, and its trials run on them"

    database.clear()
    for _ in range(2):
        database.write([rows])
    frame = history_frame(database.history.training_runs())
    assert list(frame.status) == ["ok", "oom"]
    assert list(frame.micro_batch) == [1, 8]
    (job,) = database.history.jobs()
    assert (job.attempts, job.failure, job.gpu_hours) == (1, "", 8.0)


def test_plan_and_summary_of_every_attempt_stay_on_record(database: Database) -> None:
    plan = {"zero": 2, "memory": {"total_gb": 21.5}}
    summary = AttemptSummary(steps=4, step_s=1.5, tokens_per_s=800.0, mfu=0.4, memory_gb=20.5, losses=[StepLoss(step=3, loss=0.5)])
    failed = attempt(1, 0, 5, phase=Phase.FAILED, failure="OutOfMemory", plan=plan, summary=summary)
    now = status(failed, attempt(2, 6, 9, plan=plan), phase=Phase.SUCCEEDED)
    database.clear()
    database.write([rows_of(jobspec(1), now)])
    forgotten = now.model_copy(update={"attempts": [failed.model_copy(update={"plan": {}, "summary": None}), now.attempts[1]]})
    database.write([rows_of(jobspec(2), forgotten)])

    (job,) = database.history.jobs()
    first, second = database.history.detail(job)["attempts"]
    assert (first["plan"], second["plan"], second["summary"]) == (plan, plan, None)
    assert first["summary"] == {"steps": 4, "step_s": 1.5, "tokens_per_s": 800.0, "mfu": 0.4, "memory_gb": 20.5}
    assert [(row["step"], row["loss"]) for row in first["series"]] == [(3, 0.5)]


def test_progress_of_the_attempt_before_is_not_that_of_the_next() -> None:
    now = status(attempt(1, 0, 5, phase=Phase.FAILED, failure="NodeLost", last_step=40), attempt(2, 6))
    now.tasks[0].progress.step = 40

    assert rows_of(jobspec(), now).steps == ()


def test_a_job_that_is_deleted_while_it_runs_ends_when_its_last_attempt_does() -> None:
    stopped = status(attempt(1, 0, 9, phase=Phase.CANCELLED, failure="Cancelled"))
    rows = rows_of(jobspec(deletionTimestamp=moment(7)), stopped)

    assert (rows.job["status"], rows.job["message"], rows.job["ended_at"]) == ("cancelled", DELETED, START + timedelta(minutes=9))


HOSTILE = ["\0", "a\0b", "\ud800", "x" * 100_000, "\u202e<script>", "'; drop table jobs; --", ""]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_cut_and_kept(text: str) -> None:
    item = jobspec(annotations={USER: text})
    item["spec"] = {"tasks": [{"name": text, "train": {"x": text}}, None, 7], "team": text}
    told = attempt(1, 0, 5, phase=Phase.FAILED, failure="UserError")
    for name in ("message", "task"):
        told = told.model_copy(update={name: text})
    now = status(phase=Phase.FAILED)
    now.attempts, now.message = [told], text

    with Database() as database:
        database.write([rows_of(item, now)])
        ((name,),) = database.all("select task from attempts")
    assert len(name) <= 63


@pytest.mark.parametrize("spec", [None, "text", [], {"tasks": "text"}, {"tasks": [{"name": 7}]}, {"team": {"a": 1}}])
def test_a_spec_of_any_form_makes_rows(spec: Any) -> None:
    item = {**jobspec(), "spec": spec}

    assert rows_of(item, status(attempt(1))).attempts[0]["kind"] == ""


def test_numbers_beyond_their_column_are_cut() -> None:
    row = fitted(tables.attempts, {"number": 10**12, "gpus": -(10**12), "price_per_gpu_hour": float("inf")})

    assert row == {"number": 2**31 - 1, "gpus": 1 - 2**31, "price_per_gpu_hour": None}


# --- any order and repetition of writes


class Database:
    """A history of its own, whose rows are compared as a whole."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        url = f"sqlite:///{self._folder.name}/h.db"
        self.history = History.open(url)
        self._engine = sa.create_engine(url)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()
        self.history.close()
        self._folder.cleanup()

    def write(self, jobs: Sequence[JobRows]) -> None:
        self.history.record(jobs, datetime.now(UTC))

    def all(self, query: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row but samples of progress, without the moment of its writing."""
        left_out = {"recorded_at"}
        found = {}
        for table in (tables.jobs, tables.attempts, tables.usage, tables.scores):
            names = ", ".join(column.name for column in table.columns if column.name not in left_out)
            found[table.name] = sorted(map(repr, self.all(f"select {names} from {table.name}")))  # type: ignore[type-var]
        return found  # type: ignore[return-value]

    def clear(self) -> None:
        with self._engine.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(table.delete())


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with Database() as found:
        yield found


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[dict[str, Any], JobStatus]]:
    """The JobSpec and status of a job after each of its changes: attempts begin, step, fail, and end."""
    found: list[tuple[dict[str, Any], JobStatus]] = []
    attempts: list[Attempt] = []
    clock, metrics = 0.0, draw(st.dictionaries(st.sampled_from(["rouge_l", "mfu", "loss"]), st.floats(0, 1), max_size=3))

    def keep(phase: Phase, **changes: Any) -> None:
        task = TaskStatus(name="train", metrics=metrics if phase.final else {})
        found.append((jobspec(len(found) + 1), JobStatus(phase=phase, attempts=list(attempts), tasks=[task], **changes)))

    keep(Phase.QUEUED)
    for number in range(1, draw(st.integers(1, 4)) + 1):
        attempts.append(attempt(number, clock, phase=Phase.STARTING))
        keep(Phase.STARTING)
        for _ in range(draw(st.integers(0, 3))):
            attempts[-1] = attempts[-1].model_copy(update={"phase": Phase.RUNNING, "last_step": attempts[-1].last_step + 1})
            keep(Phase.RUNNING)
        clock += draw(st.floats(0, 200))
        ends = {"phase": Phase.FAILED, "failure": "NodeLost", "message": "gone", "ended_at": moment(clock)}
        attempts[-1] = attempts[-1].model_copy(update=ends)
        keep(Phase.QUEUED)
    attempts[-1] = attempts[-1].model_copy(update={"phase": Phase.SUCCEEDED, "failure": None, "message": ""})
    keep(Phase.SUCCEEDED, finished_at=moment(clock))
    return found


@hypothesis_settings(max_examples=40, deadline=None)
@given(life=lives(), chance=st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_writes_leaves_the_rows_of_the_newest(database: Database, life: Any, chance: Any) -> None:
    made = [rows_of(item, now) for item, now in life]
    database.clear()
    database.write([made[-1]])
    wanted = database.dump()

    database.clear()
    order = [*chance.choices(range(len(made)), k=len(made)), len(made) - 1]
    chance.shuffle(order)
    for index in order:
        database.write([made[index]])

    assert database.dump() == wanted


@hypothesis_settings(max_examples=40, deadline=None)
@given(life=lives())
def test_usage_of_the_rows_is_usage_of_the_status(database: Database, life: Any) -> None:
    item, last = life[-1]
    database.clear()
    database.write([rows_of(item, last)])
    until = START + timedelta(days=2)

    whole = sum(row["gpu_hours"] for row in database.history.usage(START - timedelta(days=9), until))
    by_month = database.history.usage(START - timedelta(days=9), until, ("month", "team"))
    kept = sum(row[0] for row in database.all("select gpu_hours from usage"))
    exact = sum(held_hours(each, START, until) * PLACE.gpus for each in last.attempts)
    assert round(exact, 4) == usage_of(last.attempts, until)[0]
    assert kept == pytest.approx(exact, abs=1e-9)
    assert whole == pytest.approx(exact, abs=1e-5)
    assert sum(row["gpu_hours"] for row in by_month) == pytest.approx(exact, abs=1e-5)


def test_an_attempt_over_midnight_of_a_month_counts_in_both(database: Database) -> None:
    database.clear()
    database.write([rows_of(jobspec(), status(attempt(1, 0, 150), phase=Phase.SUCCEEDED))])  # 23:00 to 01:30

    rows = database.history.usage(datetime(2025, 11, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), ("month", "team", "user", "sku"))
    assert [(row["month"], row["team"], row["sku"], round(row["gpu_hours"], 4), round(row["cost"], 3)) for row in rows] == [
        ("2025-11", "maps", "h100-80gb", 8.0, 20.0),
        ("2025-12", "maps", "h100-80gb", 12.0, 30.0),
    ]
