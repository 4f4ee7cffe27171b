"""What a hub sees of an attempt, event by event."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.builders.reports import train_events, train_result

from tuneyard.api import BadInput, Blame, FailureKind, JobFailed
from tuneyard.api.attempt_report import AttemptState, RankPlace
from tuneyard.api.status import Phase
from tuneyard.api.wire import read
from tuneyard.runtime.attempt.state import failed, figures, search, state_of, stopped, succeeded
from tuneyard.tracking import (
    Charged,
    Checkpointed,
    Event,
    Placed,
    Preflighted,
    Scored,
    Stage,
    Step,
    TaskEvent,
    TaskProgress,
    TimeSplit,
    Tried,
    Warned,
    after,
)

STEP = Step(
    task="tune",
    step=1,
    of=120,
    loss=3.2,
    learning_rate=1e-4,
    tokens=10,
    step_s=0.1,
    tokens_per_s=5230.0,
    mfu=0.31,
    eta_s=62.0,
)
RANKS = (RankPlace(rank=0, pod="pod-0", node="gpu-7"), RankPlace(rank=1, pod="pod-1", node="gpu-8"))


def state_after(*events: Event) -> AttemptState:
    task = TaskProgress(name="")
    for event in events:
        task = after(task, event, now_s=0.0)
    return state_of(task)


def test_charges_of_endpoints_are_told() -> None:
    assert state_after(TaskEvent(task="judge", state="started", kind="score")).charged is None
    assert state_after(Charged(task="judge", amount=0.25), Charged(task="judge", amount=0.5)).charged == 0.75


def test_it_starts_until_its_ranks_have_begun() -> None:
    before = TaskEvent(task="tune", state="started", kind="train"), Stage(task="tune", name="waiting for machines", done=1, of=2)
    waiting = state_after(*before)
    assert waiting.phase is Phase.STARTING
    assert waiting.stage == waiting.progress.summary == "waiting for machines 1/2"
    running = state_after(*before, Placed(task="tune", ranks=RANKS))
    assert running.phase is Phase.RUNNING
    assert running.world_size == 2
    assert running.ranks[1].node == "gpu-8"


def test_texts_that_are_too_long_for_a_report_do_not_end_the_task() -> None:
    state = state_after(Stage(task="tune", name="x" * 100_000), Warned(task="tune", message="y" * 100_000))
    assert state.stage == state.progress.summary == "x" * 100_000
    assert read(AttemptState, state.model_dump(by_alias=True)).value.message == "y" * 2_000


def test_steps_are_its_progress() -> None:
    state = state_after(Stage(task="tune", name="training"), STEP, replace(STEP, step=2))
    assert state.stage == ""
    assert state.progress.summary == "step 2/120"
    assert (state.progress.loss, state.progress.tokens_per_s, state.progress.mfu, state.progress.eta_s) == (3.2, 5230.0, 0.31, 62.0)


def test_waits_for_data_are_a_share_of_the_last_minute_whatever_the_length_of_steps() -> None:
    rapid = [replace(STEP, step=1 + number, step_s=0.1, split=TimeSplit(forward_s=0.1)) for number in range(600)]
    stalled = replace(STEP, step=601, step_s=60.0, split=TimeSplit(data_s=60.0))
    assert state_after(*rapid).progress.data_wait == 0
    assert state_after(*rapid, stalled).progress.data_wait == pytest.approx(1 - 1 / math.e, abs=1e-3)
    assert state_after(stalled, *rapid).progress.data_wait == pytest.approx(1 / math.e, abs=1e-3)


def test_trials_are_the_progress_of_a_search() -> None:
    tried = Tried(task="search", number=3, of=18, settings={"batch.micro": 2}, measured=900.0, ratio=1.2)
    state = state_after(tried, replace(tried, number=4, measured=700.0), replace(tried, number=5, measured=None, failure="OutOfMemory"))
    assert state.phase is Phase.RUNNING
    assert (state.progress.summary, state.progress.tokens_per_s) == ("trial 5/18", 900.0)


def test_a_search_tells_its_trials_while_it_runs_as_its_report_will() -> None:
    own = Tried(task="search", number=1, of=18, settings={}, measured=700.0)
    better = replace(own, number=2, settings={"batch.micro": 2}, measured=840.0, ratio=1.2)
    failed = replace(own, number=3, settings={"batch.micro": 8}, measured=math.nan, failure="OutOfMemory")
    assert "trials" not in state_after(own).metrics
    told = state_after(own, better, failed, own, replace(better, number=5, ratio=1.19)).metrics["trials"]
    assert told == [
        {"number": 2, "point": {"batch.micro": 2}, "ratio": 1.2, "tokens_per_s": 840.0},
        {"number": 3, "point": {"batch.micro": 8}, "failure": "OutOfMemory"},
    ]


def test_the_first_step_tells_where_it_resumed() -> None:
    state = state_after(replace(STEP, step=41), replace(STEP, step=42), Checkpointed(task="tune", step=60, uri="x", seconds=1, bytes=1))
    assert state.resumed_from == 40
    assert state.checkpoint_step == 60
    assert state_after(replace(STEP, step=41)).checkpoint_step == 40
    assert state_after(STEP).resumed_from == 0


def test_rows_are_the_progress_of_a_score_task() -> None:
    state = state_after(Scored(task="judge", rows=150, of=300, errors=1, output_tokens_per_s=4100.0, eta_s=12.0))
    assert (state.progress.step, state.progress.of, state.progress.summary) == (150, 300, "rows 150/300")
    assert state.progress.tokens_per_s == 4100.0
    assert state.phase is Phase.RUNNING


def test_numbers_that_json_has_not_are_left_out() -> None:
    state = state_after(replace(STEP, loss=math.nan, eta_s=math.inf))
    assert state.progress.loss is None
    assert state.progress.eta_s is None
    assert "NaN" not in state.model_dump_json()


def test_the_end_brings_figures_and_artifacts() -> None:
    state = succeeded(state_after(*train_events(), TaskEvent(task="train", state="succeeded", kind="train", result=train_result())))
    assert state.phase is Phase.SUCCEEDED
    assert state.artifacts == ["s3://models/support-bot/train/model"]
    assert state.metrics["mfu"] == 0.418
    assert state.metrics["peak_memory_gb"] == 54.2, "of the rank with the highest peak"
    assert state.progress.eta_s == 0


def test_the_bandwidth_of_the_preflight_is_a_figure_from_then_on() -> None:
    measured = Preflighted(task="train", seconds=1.0, all_reduce_gb_per_s=21.5)
    assert state_after(measured).metrics == {"all_reduce_gb_per_s": 21.5}
    done = state_after(measured, TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    assert done.metrics["all_reduce_gb_per_s"] == 21.5


def test_settings_are_told_from_the_start_and_are_those_of_the_attempt() -> None:
    first = TaskEvent(task="train", state="started", kind="train", settings={"micro_batch": 4})
    assert state_after(first).settings == {"micro_batch": 4}
    assert state_after(first, TaskEvent(task="train", state="started", kind="train", attempt=2)).settings == {}


def test_plan_and_summary_are_those_of_the_attempt() -> None:
    first = TaskEvent(task="train", state="started", kind="train", plan={"zero": 2, "memory": {"total_gb": 21.5}})
    steps = [event for event in train_events(3) if isinstance(event, Step)]
    told = state_after(first, *steps)
    assert (told.plan, told.summary and told.summary.steps) == ({"zero": 2, "memory": {"total_gb": 21.5}}, len(steps))
    assert [each.step for each in told.summary.losses] == [step.step for step in steps]  # type: ignore[union-attr]
    again = state_after(first, *steps, TaskEvent(task="train", state="started", kind="train", attempt=2))
    assert (again.plan, again.summary) == ({}, None)


def test_a_search_tells_its_trials_and_winner_and_no_more() -> None:
    trials = [{"number": n, "point": {"zero": 2}, "ratio": 1.2, "failure": None, "log": "x" * 5_000} for n in range(100)]
    found = search({"gain": 0.2, "best": {"zero": 2}, "trials": trials})
    assert found["best"] == {"zero": 2}
    assert found["trials"] == [{"number": n, "point": {"zero": 2}, "ratio": 1.2} for n in range(64)]
    assert search({"rows": 3}) == {}


def test_metrics_of_a_score_task_are_figures() -> None:
    result = {"rows": 300, "metrics": {"perplexity": 3.12, "odd": math.nan}, "output": "s3://m/judge/parts"}
    state = state_after(TaskEvent(task="judge", state="succeeded", kind="score", result=result))
    assert state.metrics == {"rows": 300, "perplexity": 3.12}
    assert state.artifacts == ["s3://m/judge/parts"]


def test_a_failure_names_node_rank_and_last_lines() -> None:
    blame = Blame(rank=1, node="gpu-8", log_tail="  step 7\n  Segmentation fault")
    error = JobFailed(f"rank 1 died; its last lines:\n{blame.log_tail}", "read the log", kind=FailureKind.NODE_LOST, blame=blame)
    state = failed(state_after(STEP), error)
    assert state.phase is Phase.FAILED
    assert state.failure is not None
    assert state.failure.message == "rank 1 died; its last lines"
    assert (state.failure.kind, state.failure.node, state.failure.rank) == (FailureKind.NODE_LOST, "gpu-8", 1)
    assert state.failure.log_tail.endswith("Segmentation fault")
    assert state.progress.step == 1, "how far it came stays"


def test_lines_of_bad_input_stay_in_the_message() -> None:
    state = failed(AttemptState(), BadInput("a: wrong\nb: wrong too", "correct them"))
    assert state.failure is not None
    assert state.failure.message == "a: wrong\nb: wrong too"
    assert state.failure.kind is FailureKind.USER_ERROR


@pytest.mark.parametrize(("reason", "phase"), [("Cancelled", Phase.CANCELLED), ("Preempted", Phase.PREEMPTED), ("Deadline", Phase.FAILED)])
def test_a_stop_ends_as_it_was_asked_for(reason: str, phase: Phase) -> None:
    state = stopped(state_after(STEP, Warned(task="tune", message="slow")), reason)  # type: ignore[arg-type]
    assert state.phase is phase
    assert (state.failure is not None) == (reason == "Deadline")


def test_the_bounds_of_a_metric_are_figures_too() -> None:
    result = {"rows": 40, "metrics": {"exact_match": 0.5}, "intervals": {"exact_match": (0.4, 0.6), "loss": None}}
    assert figures(result) == {"rows": 40, "exact_match": 0.5, "exact_match.low": 0.4, "exact_match.high": 0.6}
