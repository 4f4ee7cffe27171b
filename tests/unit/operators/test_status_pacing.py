"""How often statuses are written on which nothing hangs."""

from __future__ import annotations

import pytest
from tests.builders.attempts import attempt, running, status

from tuneyard.api import JobStatus, Phase, TaskStatus
from tuneyard_operators.hub.outcomes import Action, Outcome, Verb
from tuneyard_operators.hub.write_pace import between_writes_s, must_be_on_record


@pytest.mark.parametrize("unfinished", [1, 99, 1_000, 50_000])
def test_progress_of_all_jobs_together_is_written_50_times_a_second_at_most(unfinished: int) -> None:
    assert unfinished / between_writes_s(unfinished, news=False, placed=False) <= 50


@pytest.mark.parametrize("unfinished", [1, 50_000])
def test_what_people_wait_for_is_told_at_once_however_many_jobs_there_are(unfinished: int) -> None:
    assert between_writes_s(unfinished, news=True, placed=False) == 2
    assert between_writes_s(unfinished, news=True, placed=True) == 2


def test_the_first_sight_of_a_rayjob_goes_with_what_follows_it() -> None:
    assert between_writes_s(1, news=False, placed=True) == 5


def outcome(after_look: JobStatus, *verbs: Verb) -> Outcome:
    return Outcome(status=after_look, changed=True, actions=tuple(Action(verb) for verb in verbs))


@pytest.mark.parametrize(
    ("before", "after_look", "verbs"),
    [
        pytest.param(status(), status(attempt()), [], id="an attempt"),
        pytest.param(status(running()), status(running(stopping="Preempted")), [], id="a notice"),
        pytest.param(status(running()), status(running(ended_at="2026-11-21T12:02:00Z")), [], id="an end"),
        pytest.param(status(attempt(cleaned=False)), status(attempt(cleaned=True)), [], id="GPUs that are free"),
        pytest.param(status(), status(tasks=[TaskStatus(name="one", owed_since="2026-11-21T12:02:00Z")]), [], id="room that others make"),
        pytest.param(status(), status(phase=Phase.FAILED), [], id="a final phase"),
        pytest.param(status(), status(observed_generation=2), [], id="another generation"),
        pytest.param(status(), status(), [Verb.CLEAN], id="an action"),
    ],
)
def test_a_status_that_others_rely_on_is_written_at_once(before: JobStatus, after_look: JobStatus, verbs: list[Verb]) -> None:
    assert must_be_on_record(before, outcome(after_look, *verbs), is_first=False)


@pytest.mark.parametrize(
    ("before", "after_look", "verbs"),
    [
        pytest.param(status(running()), status(running(last_step=7)), [], id="progress"),
        pytest.param(status(), status(message="one: no room"), [], id="a reason for waiting"),
        pytest.param(status(), status(), [Verb.ADD_FINALIZER], id="the finalizer, which is on record by itself"),
    ],
)
def test_a_status_that_nobody_relies_on_may_wait(before: JobStatus, after_look: JobStatus, verbs: list[Verb]) -> None:
    assert not must_be_on_record(before, outcome(after_look, *verbs), is_first=False)


@pytest.mark.parametrize(("first", "at_once"), [(status(), False), (status(message="waits: no template"), True), (status(attempt()), True)])
def test_the_first_status_waits_for_the_first_cycle_if_it_has_nothing_to_say(first: JobStatus, at_once: bool) -> None:
    assert must_be_on_record(status(), outcome(first), is_first=True) is at_once
