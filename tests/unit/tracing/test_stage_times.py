"""Stages of an attempt with their times, folded from its events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api.moments import moment_of
from tuneyard.api.status import MOST_STAGES
from tuneyard.tracking import Checkpointed, Event, Stage, Step, TaskEvent
from tuneyard.tracking.stage_times import Stages, begun, stages_after

BEGIN = datetime(2026, 11, 26, 9, 0, tzinfo=UTC)


def stage(name: str, done: float = 0) -> Stage:
    return Stage(task="train", name=name, done=done, of=10)


def step(number: int, seconds: float = 2) -> Step:
    figures = {"loss": 1.0, "learning_rate": 0.1, "tokens": 8, "tokens_per_s": 4.0, "mfu": 0.1, "eta_s": 1.0}
    return Step(task="train", step=number, of=100, step_s=seconds, **figures)  # type: ignore[arg-type]


def saved(number: int, seconds: float = 1) -> Checkpointed:
    return Checkpointed(task="train", step=number, uri="", seconds=seconds, bytes=1, blocked_s=0.25)


def folded(events: list[tuple[float, Event]]) -> Stages:
    found = begun("prepare", BEGIN)
    for seconds, event in events:
        found = stages_after(found, event, BEGIN + timedelta(seconds=seconds))
    return found


def seconds(text: str | None) -> float | None:
    return (moment_of(text) - BEGIN).total_seconds() if text else None


def test_stages_follow_each_other_and_the_first_step_has_its_own() -> None:
    ended = TaskEvent(task="train", state="succeeded")
    events = [(5, stage("loading the model")), (9, stage("tokenising", 1)), (12, stage("tokenising", 9)), (20, step(1, 6)), (22, step(2))]
    found = folded([*events, (23, saved(2)), (30, stage("saving the model")), (33, ended)])
    assert [(each.name, seconds(each.began_at), seconds(each.ended_at)) for each in found] == [
        ("prepare", 0, 5),
        ("loading the model", 5, 9),
        ("tokenising", 9, 14),
        ("first step", 14, 20),
        ("training", 20, 30),
        ("checkpoint", 22, 23),
        ("saving the model", 30, 33),
    ]
    assert (found[5].step, found[5].blocked_s) == (2, 0.25)


events = st.one_of(
    st.text(max_size=400).map(stage),
    st.builds(step, st.integers(1, 9), st.sampled_from([0.0, 3.0, 1e6, 1e300, float("inf"), float("nan"), -1.0])),
    st.builds(saved, st.integers(1, 9), st.sampled_from([0.0, 3.0, -1.0])),
    st.sampled_from(["started", "succeeded", "failed"]).map(lambda state: TaskEvent(task="train", state=state)),  # type: ignore[arg-type]
)


@given(st.lists(st.tuples(st.floats(0, 100), events), max_size=120))
def test_any_events_give_few_stages_that_end_after_they_begin(told: list[tuple[float, Event]]) -> None:
    found = folded(told)
    assert len(found) <= MOST_STAGES
    assert all(each.ended_at is None or moment_of(each.began_at) <= moment_of(each.ended_at) for each in found)
    assert sum(each.ended_at is None for each in found) <= 1
