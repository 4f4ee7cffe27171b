"""The progress of a task is folded from its events once; the report, the hub and the terminal say the same of it."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.reports import make_job, train_events, train_result

from tuneyard.api import Attempt, JobSpec, JobStatus, Phase, TaskStatus
from tuneyard.cli.progress.plain import PlainLines, PlainProgress
from tuneyard.runtime.attempt.state import state_of
from tuneyard.tracking import (
    Checkpointed,
    Evaluated,
    Event,
    Placed,
    Preflighted,
    Recorder,
    Scored,
    Stage,
    Step,
    TaskEvent,
    TaskProgress,
    Tried,
    Warned,
    after,
    job_after,
    job_before,
    job_of_status,
    open_recorder,
    task_of_status,
)
from tuneyard.tracking.progress.fold import StageProgress
from tuneyard.tracking.progress.words import attempt_words, began_words, doing, figures, first_line, progress_line, read_stage, stage_words

KINDS = {"base": "score", "train": "train", "search": "tune"}
STEP = next(event for event in train_events(1) if isinstance(event, Step))
numbers = st.floats(min_value=0, max_value=1e9) | st.sampled_from([math.nan, math.inf, -math.inf])
names = st.sampled_from(["loading the model", "tokenising", "waiting for machines", "continues from step 51 of 400", "opening 3/4 rows"])


def folded(events: Sequence[Event], name: str = "train", kind: str = "train") -> TaskProgress:
    task = TaskProgress(name=name, kind=kind)
    for second, event in enumerate(events):
        if event.task == name:
            task = after(task, event, float(second))
    return task


def through_the_hub(task: TaskProgress) -> TaskProgress:
    """The task as a client reads it from the status that a hub copies from the attempt's report."""
    state = state_of(task)
    told = TaskStatus(name=task.name, phase=state.phase, progress=state.progress, message=state.message)
    attempt = Attempt(number=task.attempt, task=task.name, token=1, resumed_from=state.resumed_from, checkpoint_step=state.checkpoint_step)
    as_json = JobStatus(phase=state.phase, tasks=[told], attempts=[attempt]).model_dump_json()
    return job_of_status(JobStatus.model_validate_json(as_json), {task.name: task.kind}).tasks[task.name]


def steps(task: str = "train") -> st.SearchStrategy[Event]:
    return st.builds(
        lambda step, of, **figures: replace(STEP, task=task, step=step, of=of, **figures),
        st.integers(1, 500),
        st.integers(1, 500),
        loss=numbers,
        tokens_per_s=numbers,
        rows_per_s=st.none() | numbers,
        mfu=numbers,
        eta_s=numbers,
        step_s=st.floats(0.001, 100),
    )


def rows(task: str = "base") -> st.SearchStrategy[Event]:
    counts = st.integers(0, 500)
    return st.builds(
        lambda rows, of, errors, rate, eta_s, rows_per_s: Scored(
            task=task, rows=rows, of=of, errors=errors, output_tokens_per_s=rate, eta_s=eta_s, rows_per_s=rows_per_s
        ),
        *(counts, st.integers(1, 500), counts, numbers, numbers, st.none() | numbers),
    )


def trials(task: str = "search") -> st.SearchStrategy[Event]:
    unit = st.sampled_from(["tokens", "rows"])
    numbered = st.integers(1, 20)
    return st.builds(
        lambda number, of, measured, unit: Tried(task=task, number=number, of=of, measured=measured, unit=unit),
        *(numbered, numbered, st.none() | numbers, unit),
    )


def others(task: str) -> st.SearchStrategy[Event]:
    states = st.sampled_from(["started", "succeeded", "failed", "stopped", "skipped"])
    kind = KINDS[task]
    return st.one_of(
        st.builds(lambda state, attempt: TaskEvent(task=task, state=state, kind=kind, attempt=attempt), states, st.integers(1, 3)),
        st.builds(
            lambda name, done, of, unit: Stage(task=task, name=name, done=done, of=of, unit=unit),
            *(names, st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(["", "samples"])),
        ),
        st.builds(lambda step, loss: Evaluated(task=task, step=step, loss=loss), st.integers(1, 500), numbers),
        st.builds(lambda step: Checkpointed(task=task, step=step, uri="s3://b/x", seconds=1.0, bytes=1), st.integers(1, 500)),
        st.just(Placed(task=task, ranks=())),
        st.just(Preflighted(task=task, seconds=1.0, all_reduce_gb_per_s=10.0)),
        st.just(Warned(task=task, message="2 samples were cut")),
        st.just(Warned(task="elsewhere", message="of an unknown task")),
    )


own_events = {"base": rows(), "train": steps(), "search": trials()}
events_of_any_task = st.sampled_from(sorted(KINDS)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(others(name) | own_events[name], max_size=20))
)


def facts(task: TaskProgress) -> dict[str, Any]:
    """What hub and terminal both know."""
    names = ("count", "eta_s", "loss", "tokens_per_s", "rows_per_s", "mfu", "data_wait", "checkpoint_step", "warning", "attempt")
    return {"stage": stage_words(task.stage) if task.stage else "", **{name: getattr(task, name) for name in names}}


@given(events_of_any_task)
def test_report_hub_and_terminal_say_the_same_of_any_events(given: tuple[str, list[Event]]) -> None:
    name, events = given
    here = folded(events, name, KINDS[name])
    there = through_the_hub(here)
    recorder = Recorder(job_of_kinds())
    for event in events:
        recorder(event)
    reported = recorder.report().tasks[name]

    assert facts(there) == facts(here)
    if here.stage is not None or here.count is not None:
        assert doing(there) == doing(here)
    if here.count is not None:
        counted = reported["progress"]
        assert (counted[here.count.noun], counted["of"]) == (here.count.done, here.count.of)
        assert state_of(here).progress.step == here.count.done
        local_only = replace(here, memory_gb=None, errors=0, held_out_loss=None, entropy=None, accuracy=None, state=there.state)
        assert progress_line(there) == progress_line(local_only)
        assert all("nan" not in word and "inf" not in word.replace("finite", "") for word in figures(here))
    else:
        assert "progress" not in reported


@cache
def job_of_kinds() -> JobSpec:
    """A job with a task of each kind of KINDS."""
    job = make_job()
    train = job.spec.tasks[1]
    search = {"name": "search", "tune": {"task": "train"}}
    spec = {**job.spec.model_dump(by_alias=True, exclude_unset=True), "tasks": [job.spec.tasks[0], search, train]}
    return JobSpec.model_validate({"metadata": {"name": "j"}, "spec": spec})


def test_a_local_run_and_the_same_run_at_a_hub_print_the_same_lines() -> None:
    events = [event for event in train_events(40) if not isinstance(event, (Evaluated, Checkpointed))]
    events = [replace(event, memory_gb=None) if isinstance(event, Step) else event for event in events]
    events[1:1] = [Stage(task="train", name="tokenising", done=0, of=9000, unit="samples"), Placed(task="train", ranks=())]
    here, there = io.StringIO(), io.StringIO()
    job = JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [make_job().spec.tasks[1]]}})

    local = PlainProgress(job, here, every_s=0.0)
    hub = PlainLines(job_of_status(JobStatus(), {"train": "train"}), there, every_s=0.0, now=lambda: 0.0)
    task = TaskProgress(name="train", kind="train")
    for event in events:
        local(event)
        task = after(task, event, 0.0)
        hub.show(job_of_status(status_of(task), {"train": "train"}))

    assert here.getvalue() == there.getvalue()
    assert len(here.getvalue().splitlines()) == 42
    assert here.getvalue().splitlines()[1] == "train  tokenising 0/9,000 samples"
    assert here.getvalue().splitlines()[-1].startswith("train  step 40/40  loss 1.")


def status_of(task: TaskProgress) -> JobStatus:
    state = state_of(task)
    told = TaskStatus(name=task.name, phase=state.phase, progress=state.progress, message=state.message)
    return JobStatus(phase=state.phase, tasks=[told], attempts=[Attempt(number=1, task=task.name, token=1)])


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (STEP, "step 1/1"),
        (Stage(task="train", name="loading the model"), "loading the model"),
        (Stage(task="train", name="tokenising", done=1200, of=9000, unit="samples"), "tokenising 1,200/9,000 samples"),
        (Scored(task="train", rows=12, of=64, errors=0, output_tokens_per_s=1.0, eta_s=1.0), "rows 12/64"),
        (Tried(task="train", number=3, of=8), "trial 3/8"),
        (TaskEvent(task="train", state="started"), "starting"),
        (Placed(task="train", ranks=()), "running"),
    ],
)
def test_each_kind_of_work_has_its_words(event: Event, words: str) -> None:
    assert doing(folded([event])) == words
    assert state_of(folded([event])).progress.summary == ("" if words in ("starting", "running") else words)


def test_a_loss_that_is_not_finite_is_said_and_numbers_without_meaning_are_not() -> None:
    task = folded([TaskEvent(task="train", state="started"), replace(STEP, of=9, loss=math.nan, mfu=math.inf, eta_s=math.inf)])
    assert figures(task)[0] == figures(through_the_hub(task))[0] == "loss not finite"
    assert not [figure for figure in figures(task) if figure.startswith(("MFU", "ETA"))]


def test_a_second_attempt_starts_its_figures_again_and_a_start_in_place_keeps_them() -> None:
    begun = [TaskEvent(task="train", state="started", attempt=1), replace(STEP, step=7, of=9)]
    lost = TaskEvent(task="train", state="failed", attempt=1, failure="NodeLost", message="rank 1 died\nits last lines")
    again = folded([*begun, lost, TaskEvent(task="train", state="started", attempt=2)])
    assert (again.count, again.loss, again.resumed_from, again.checkpoint_step) == (None, None, None, 6)
    assert (began_words(again), attempt_words(again.history[0])) == (
        "attempt 2 started",
        "attempt 1 failed after 0:02: NodeLost: rank 1 died",
    )
    in_place = folded([*begun, lost, TaskEvent(task="train", state="started", attempt=1), replace(STEP, step=3, of=9)])
    assert in_place.resumed_from == 6, "one attempt of the hub begins once"


def test_a_step_after_the_end_leaves_the_end() -> None:
    assert folded([TaskEvent(task="train", state="succeeded"), STEP]).state == "succeeded"


def test_a_task_that_was_skipped_is_told_by_its_result() -> None:
    state = state_of(folded([TaskEvent(task="train", state="skipped", result=train_result() | {"resumed_from": 80})]))
    assert (state.phase, state.resumed_from, state.metrics["mfu"]) == (Phase.STARTING, 80, 0.418)


def test_a_search_over_rows_tells_its_best_in_rows() -> None:
    tried = Tried(task="train", number=1, of=8, measured=400.0, unit="rows")
    task = folded([tried, replace(tried, number=2, measured=300.0), replace(tried, number=3, measured=None)])
    assert progress_line(task) == "trial 3/8  best 400 rows/s"


def test_a_trial_that_another_gang_has_overtaken_does_not_turn_the_progress_back() -> None:
    tried = Tried(task="train", number=3, of=8, measured=400.0, gang=2)
    assert doing(folded([tried, replace(tried, number=2, gang=1)])) == "trial 3/8"


@pytest.mark.parametrize("summary", ["40/120", "step 40/120"])
def test_summaries_of_attempts_of_an_earlier_version_are_read(summary: str) -> None:
    told = TaskStatus.model_validate(
        {"name": "t", "phase": "Running", "progress": {"step": 40, "of": 120, "loss": 1.5, "summary": summary}}
    )
    assert progress_line(task_of_status(told, "train", [])) == "step 40/120  loss 1.500"
    assert doing(task_of_status(told, "score", [])) == ("step 40/120" if summary.startswith("step") else "rows 40/120")


@given(
    st.text(max_size=40) | st.from_regex(r"[a-z ]{0,9} [0-9,]{1,9}/[0-9,]{1,9}( [a-z]{1,5})?(, about [0-9:]{1,6} left)?", fullmatch=True)
)
def test_a_stage_is_read_from_its_words(words: str) -> None:
    assert stage_words(read_stage(words)) == words


def test_a_stage_that_is_read_keeps_its_length() -> None:
    stage = StageProgress("tokenising", 1200, 9000, "samples")
    assert read_stage(stage_words(stage)) == stage
    timed = StageProgress("tokenising", 12, 300, "MB", 65.0)
    assert stage_words(timed) == "tokenising 12/300 MB, about 1:05 left"
    assert read_stage(stage_words(timed)) == timed


def test_figures_beyond_a_status_and_clocks_that_jump_raise_nothing() -> None:
    """The largest float rounds to infinity at five digits; a step before its begin made the exponent overflow."""
    steps = [event for event in train_events() if isinstance(event, Step)][:2]
    wild = [replace(steps[0], eta_s=1.7976931348623157e308), replace(steps[1], step_s=-1e308, loss=1e16)]
    job = job_before(make_job())
    for event in wild:
        job = job_after(job, event, 0.0)
    task = job.tasks[wild[0].task]
    assert "loss not finite" in progress_line(task)
    assert task.eta_s != math.inf


def test_control_characters_of_a_task_reach_no_terminal() -> None:
    stream = io.StringIO()
    say = PlainProgress(make_job(), stream)
    say(Warned(task="", message="\x1b[31mred\x07 \u202eback"))
    assert not {"\x1b", "\x07", "\u202e"} & set(stream.getvalue())


def test_the_cause_of_a_command_is_its_last_line() -> None:
    assert (
        first_line("the command of task x exited 1:\nTraceback\nSystemExit: not yet\n")
        == "the command of task x exited 1: SystemExit: not yet"
    )
    assert first_line("one\ntwo") == "one"
    assert first_line("") == ""


@pytest.mark.parametrize(("status", "said"), [("stopped", "stopped"), ("failed", "failed")])
def test_no_task_runs_on_in_the_report_of_a_job_that_has_ended(status: str, said: str, tmp_path: Path) -> None:
    """After a second Ctrl-C no event tells of the task's end: the job was `stopped` beside a task that was `running`."""
    recorder = open_recorder(make_job(), output=str(tmp_path), folder=tmp_path)
    begun = next(event for event in train_events() if isinstance(event, TaskEvent) and event.state == "started")
    recorder(begun)
    assert recorder.report().tasks[begun.task]["status"] == "running"
    assert recorder.close(status, "ended at once").tasks[begun.task]["status"] == said
