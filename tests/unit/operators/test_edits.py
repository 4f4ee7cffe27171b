"""A JobSpec that is edited, in each phase: what an edit reaches, and that it starts nothing twice and forgets nothing that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.builders.attempts import after, attempt, goal, job, process, report, running, seen, status

from tuneyard.api import JobStatus, Phase, TaskStatus
from tuneyard_operators.hub.attempts import is_active
from tuneyard_operators.hub.decisions import NOTHING_DECIDED
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outcomes import Outcome, Verb
from tuneyard_operators.hub.settings import Settings

NOON_PLUS_90_S = "2026-11-21T12:01:30Z"
LIVES = seen(report=report(phase="Running"))


def _ended(number: int = 1, **fields: Any) -> Any:
    return running(number, ended_at=NOON_PLUS_90_S, cleaned=True, **{"phase": Phase.FAILED, **fields})


@dataclass(frozen=True)
class Stage:
    """A job in a phase: its status, and what of its newest attempt is on the member."""

    before: Callable[[], JobStatus]
    sees: Observed | None = None


def _final(phase: Phase, *attempts: Any) -> JobStatus:
    tasks = [TaskStatus(name="one", phase=phase)]
    return status(*attempts, tasks=tasks).model_copy(update={"phase": phase, "finished_at": NOON_PLUS_90_S})


STAGES: Mapping[str, Stage] = {
    "pending": Stage(JobStatus),
    "queued": Stage(lambda: status(tasks=[TaskStatus(name="one", phase=Phase.QUEUED)])),
    "placed": Stage(lambda: status(attempt()), Observed()),
    "starting": Stage(lambda: status(attempt(created=True)), seen(report=None)),
    "running": Stage(lambda: status(running()), LIVES),
    "preempting": Stage(lambda: status(running(stopping="Preempted", stop_asked_at=NOON_PLUS_90_S)), LIVES),
    "retry wait": Stage(lambda: status(_ended(1, failure="NodeLost"), _ended(2, failure="NodeLost"))),
    "cancelled": Stage(lambda: _final(Phase.CANCELLED, _ended(failure="Cancelled", phase=Phase.CANCELLED))),
    "succeeded": Stage(lambda: _final(Phase.SUCCEEDED, _ended(phase=Phase.SUCCEEDED))),
}
LIVE = ("starting", "running", "preempting")


@dataclass(frozen=True)
class Edit:
    """`spec`: of the edited JobSpec; `problem`: why it cannot work, where it cannot."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


EDITS: Mapping[str, Edit] = {
    "cancelled": Edit({"cancelled": True}),
    "suspended": Edit({"suspend": True}),
    "priority": Edit({"priority": "high"}),
    "more retries": Edit({"retries": {"max": 9}}),
    "image": Edit({"image": "registry/other:2"}),
    "command": Edit({"tasks": [process("one") | {"process": {"command": ["other"]}}]}),
    "another task": Edit({"tasks": [process("one"), process("two", "one")]}),
    "the task renamed": Edit({"tasks": [process("other")]}),
    "a mistake": Edit({}, problem="spec.tasks.0: wrong"),
}


def _look(edit: Edit, stage: Stage, before: JobStatus, at_s: float = 92) -> Outcome:
    observed = {own.name: stage.sees for own in before.attempts if is_active(own) and stage.sees is not None}
    aim = goal(job(**edit.spec), problem=edit.problem, generation=2)
    return advance(aim, before, {**{own.name: Observed() for own in before.attempts}, **observed}, NOTHING_DECIDED, after(at_s), Settings())


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("phase", STAGES)
def test_an_edit_keeps_every_attempt_and_starts_none_twice(phase: str, edit: str) -> None:
    before = STAGES[phase].before()
    outcome = _look(EDITS[edit], STAGES[phase], before)
    known = [(own.number, own.token, own.name) for own in before.attempts]
    assert [(own.number, own.token, own.name) for own in outcome.status.attempts] == known
    assert not (Verb.START in {action.verb for action in outcome.actions} and phase != "placed")
    active = {own.task for own in outcome.status.attempts if is_active(own)}
    assert not active & outcome.asks.keys(), "no task asks for a place while an attempt of it lives"
    assert outcome.status.observed_generation == 2


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("phase", ["cancelled", "succeeded"])
def test_a_job_that_has_ended_stays_as_it_ended(phase: str, edit: str) -> None:
    before = STAGES[phase].before()
    outcome = _look(EDITS[edit], STAGES[phase], before)
    assert (outcome.status.phase, outcome.asks, outcome.actions) == (before.phase, {}, ())


@pytest.mark.parametrize("phase", LIVE)
@pytest.mark.parametrize("edit", ["priority", "more retries", "image", "command", "another task", "the task renamed", "a mistake"])
def test_a_live_attempt_goes_on_as_it_was_started(phase: str, edit: str) -> None:
    before = STAGES[phase].before()
    outcome = _look(EDITS[edit], STAGES[phase], before)
    (own,) = outcome.status.attempts
    assert is_active(own)
    assert own.stopping == before.attempts[0].stopping
    assert outcome.status.phase in (Phase.STARTING, Phase.RUNNING)


@pytest.mark.parametrize("phase", ["pending", "queued", "placed", "starting", "running", "preempting", "retry wait"])
def test_cancelling_ends_at_once_what_has_not_begun_and_asks_what_runs(phase: str) -> None:
    outcome = _look(EDITS["cancelled"], STAGES[phase], STAGES[phase].before())
    if phase in ("running", "preempting"):
        (own,) = outcome.status.attempts
        assert (own.stopping, outcome.status.phase) == ("Preempted" if phase == "preempting" else "Cancelled", Phase.RUNNING)
        return
    assert outcome.status.phase is Phase.CANCELLED
    assert Verb.START not in {action.verb for action in outcome.actions}


@pytest.mark.parametrize("phase", ["pending", "queued", "retry wait"])
def test_a_mistake_starts_nothing_and_undone_goes_on(phase: str) -> None:
    stage = STAGES[phase]
    wrong = _look(EDITS["a mistake"], stage, stage.before())
    assert wrong.asks == {}
    assert wrong.status.phase is (Phase.QUEUED if stage.before().attempts else Phase.FAILED)
    mended = _look(EDITS["priority"], stage, wrong.status, at_s=200)
    assert list(mended.asks) == ["one"]


def test_a_mistake_keeps_a_placed_attempt_from_being_made_until_it_is_undone() -> None:
    stage = STAGES["placed"]
    wrong = _look(EDITS["a mistake"], stage, stage.before())
    assert wrong.actions == ()
    mended = _look(EDITS["priority"], stage, wrong.status)
    assert [action.verb for action in mended.actions] == [Verb.START]
