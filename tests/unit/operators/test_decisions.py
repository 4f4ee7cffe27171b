"""What the scheduler has decided for a job, taken into its status by the next look: starts, notices, reasons for waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.attempts import NOON, after, attempt, goal, job, process, report, running, seen, status

from tuneyard.admission import ask_of
from tuneyard.api import Attempt, JobSpec, JobStatus, Phase, PlacementStatus, TaskStatus
from tuneyard.federation import Ask, Place
from tuneyard_operators.hub.clock import written
from tuneyard_operators.hub.decisions import NOTHING_DECIDED, Decided, TaskRecord, Verdict
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outcomes import Outcome, Verb
from tuneyard_operators.hub.settings import Settings

SETTINGS = Settings()
EAST = PlacementStatus(cluster="east", sku="cpu", workers=1, gpus=1, pods=1, nodes={"n1": 1})
THREE = job(tasks=[process("one"), process("two"), process("three", "two")])


def ask(task: str = "one", spec: JobSpec | None = None) -> Ask:
    return ask_of(spec or job(), NOON.timestamp(), task, JobStatus(), frozenset())


def placed(task: str = "one", spec: JobSpec | None = None) -> TaskRecord:
    own = ask(task, spec)
    return TaskRecord(own, place=Place(ask=own, cluster="east", sku="cpu", workers=own.worlds[0], pods=1, nodes={"n1": 1}))


def waiting(reason: str, starts: float | None = None, task: str = "one", spec: JobSpec | None = None) -> TaskRecord:
    return TaskRecord(ask(task, spec), verdict=Verdict(reason, starts))


def decided(victims: dict[int, str] | None = None, worded_s: float | None = None, **tasks: TaskRecord) -> Decided:
    return Decided(
        tasks=tasks,
        placements={task: EAST for task, known in tasks.items() if known.place is not None},
        victims=victims or {},
        worded_at=None if worded_s is None else after(worded_s),
    )


def look(before: JobStatus, decisions: Decided, spec: JobSpec | None = None, at_s: float = 120, **observed: Observed) -> Outcome:
    """One look; observations by attempt number, as `_1=…`."""
    by_number = {f"_{own.number}": own.name for own in before.attempts}
    shown = {by_number[number]: what for number, what in observed.items()}
    return advance(goal(spec or job()), before, shown, decisions, after(at_s), SETTINGS)


def verbs(outcome: Outcome) -> list[tuple[str, int]]:
    return [(action.verb, action.attempt.number if action.attempt else 0) for action in outcome.actions]


# --- placements


def test_a_placed_task_becomes_an_attempt_that_starts() -> None:
    outcome = look(JobStatus(), decided(one=placed()))
    (own,) = outcome.status.attempts
    assert (own.number, own.task, own.placement, own.placed_at) == (1, "one", EAST, written(after(120)))
    assert verbs(outcome) == [(Verb.START, 1)]
    assert (outcome.status.phase, outcome.status.tasks[0].phase, outcome.status.placement) == (Phase.STARTING, Phase.STARTING, EAST)
    assert outcome.status.started_at == written(after(120))


def test_a_placement_shows_in_the_conditions_of_the_same_status() -> None:
    """It was a look late: the status that held a placement said Placed=False."""
    conditions = {each.type: each.status for each in look(JobStatus(), decided(one=placed())).status.conditions}
    assert conditions["Placed"] == "True"


def test_tasks_that_are_placed_at_once_start_at_once_and_count_on() -> None:
    outcome = look(JobStatus(), decided(one=placed("one", THREE), two=placed("two", THREE)), THREE)
    assert [(own.number, own.task) for own in outcome.status.attempts] == [(1, "one"), (2, "two")]
    assert verbs(outcome) == [(Verb.START, 1), (Verb.START, 2)]


@pytest.mark.parametrize(
    ("before", "spec"),
    [
        pytest.param(status(running()), job(), id="its attempt runs"),
        pytest.param(JobStatus(), job(suspend=True), id="the job is suspended"),
        pytest.param(JobStatus(), job(cancelled=True), id="the job is cancelled"),
        pytest.param(JobStatus(), job(tasks=[process("zero"), process("one", "zero")]), id="another task comes first"),
    ],
)
def test_a_placement_of_a_task_that_waits_no_more_starts_nothing(before: JobStatus, spec: JobSpec) -> None:
    outcome = look(before, decided(one=placed()), spec, _1=seen()) if before.attempts else look(before, decided(one=placed()), spec)
    assert len(outcome.status.attempts) == len(before.attempts)
    assert all(verb is not Verb.START for verb, _ in verbs(outcome))
    assert "one" not in outcome.asks


def test_a_placement_that_the_ask_does_not_allow_any_more_starts_nothing() -> None:
    smaller = replace(ask(), worlds=(7,))
    stale = TaskRecord(smaller, place=Place(ask=smaller, cluster="east", sku="cpu", workers=7, pods=1, nodes={"n1": 7}))
    outcome = look(JobStatus(), decided(one=stale))
    assert (outcome.status.attempts, outcome.ready) == ([], ("one",))


def test_the_next_attempt_counts_on_from_the_last() -> None:
    lost = attempt(3, ended_at="2026-11-21T12:01:00Z", failure="NodeLost", phase=Phase.FAILED, cleaned=True)
    outcome = look(status(lost), decided(one=placed()), at_s=600)
    assert [own.number for own in outcome.status.attempts] == [3, 4]


# --- victims


def test_a_victim_that_runs_is_asked_to_stop_and_told_why() -> None:
    outcome = look(status(running()), decided({1: "makes room for maps/b"}), _1=seen())
    (own,) = outcome.status.attempts
    assert (own.stopping, own.stopped_for, own.stop_asked_at) == ("Preempted", "makes room for maps/b", written(after(120)))
    assert verbs(outcome) == [(Verb.STOP, 1)]


def test_a_victim_that_has_not_begun_ends_at_once_and_is_never_started() -> None:
    """It was started and asked to stop in the same look, and ended by a later one."""
    outcome = look(status(attempt()), decided({1: "makes room for maps/b"}), _1=Observed())
    (own,) = outcome.status.attempts
    assert (own.failure, own.message, own.cleaned) == ("Preempted", "stopped before it had begun", True)
    assert verbs(outcome) == []
    assert outcome.ready == ("one",), "it waits for another place, and nothing of this counts as a retry"


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(running(stopping="Cancelled", stop_asked_at="2026-11-21T12:01:59Z"), id="it stops already"),
        pytest.param(running(ended_at="2026-11-21T12:01:30Z", phase=Phase.SUCCEEDED, cleaned=True), id="it has ended"),
    ],
)
def test_a_notice_that_comes_too_late_changes_nothing(own: Attempt) -> None:
    ends = status(own, tasks=[TaskStatus(name="one", phase=Phase.SUCCEEDED if own.ended_at else Phase.RUNNING)])
    outcome = look(ends, decided({1: "makes room for maps/b"}), _1=seen())
    (after_look,) = outcome.status.attempts
    assert (after_look.stopping, after_look.stopped_for) == (own.stopping, "")


def test_a_victim_of_a_cancelled_job_is_cancelled() -> None:
    outcome = look(status(running()), decided({1: "makes room for maps/b"}), job(cancelled=True), _1=seen())
    assert outcome.status.attempts[0].stopping == "Cancelled"


def test_a_victim_on_a_member_that_is_away_has_its_notice_on_record() -> None:
    outcome = look(status(running()), decided({1: "makes room for maps/b"}), _1=Observed(known=False, unreachable_s=10))
    assert (outcome.status.attempts[0].stopping, verbs(outcome)) == ("Preempted", [])


# --- reasons for waiting


def test_a_waiting_task_says_why_and_when_it_is_likely_to_start() -> None:
    outcome = look(JobStatus(), decided(one=waiting("no room", NOON.timestamp() + 3600)))
    assert (outcome.status.message, outcome.status.expected_start) == ("one: no room", "2026-11-21T13:00:00Z")
    assert outcome.worded_at == after(120)
    condition = next(each for each in outcome.status.conditions if each.type == "Placed")
    assert (condition.status, condition.message) == ("False", "one: no room"), "in the same status"


@pytest.mark.parametrize(
    ("worded_s", "starts", "message"),
    [
        pytest.param(100, None, "one: as before", id="told 20 s ago"),
        pytest.param(80, None, "one: no room", id="told 40 s ago"),
        pytest.param(None, None, "one: no room", id="not told by this hub"),
        pytest.param(100, 3600.0, "one: no room", id="a first predicted start is told at once"),
        pytest.param(10_000, None, "one: no room", id="the clock was set back"),
    ],
)
def test_reasons_are_written_twice_a_minute_at_most(worded_s: float | None, starts: float | None, message: str) -> None:
    before = JobStatus(phase=Phase.QUEUED, message="one: as before")
    verdict = waiting("no room", NOON.timestamp() + starts if starts is not None else None)
    outcome = look(before, decided(worded_s=worded_s, one=verdict))
    assert outcome.status.message == message
    assert outcome.worded_at == after(worded_s if message == "one: as before" and worded_s is not None else 120)


def test_a_reason_for_another_ask_is_not_told() -> None:
    old = TaskRecord(replace(ask(), worlds=(7,)), verdict=Verdict("no room for 7", None))
    outcome = look(JobStatus(), decided(one=old))
    assert (outcome.status.message, outcome.worded_at) == ("", None)


def test_a_job_of_which_one_task_starts_gives_no_reasons_for_the_other() -> None:
    outcome = look(JobStatus(), decided(one=placed("one", THREE), two=waiting("no room", None, "two", THREE)), THREE)
    assert (outcome.status.phase, outcome.status.message, outcome.worded_at) == (Phase.STARTING, "", None)


def test_a_start_predicted_for_the_next_millennium_is_none() -> None:
    assert look(JobStatus(), decided(one=waiting("no room", 1e12))).status.expected_start is None


# --- room that others make


def test_the_next_leader_learns_since_when_others_make_room() -> None:
    known = TaskRecord(ask(), owed_since=NOON.timestamp())
    outcome = look(JobStatus(), decided(one=known))
    assert outcome.status.tasks[0].owed_since == "2026-11-21T12:00:00Z"
    again = look(outcome.status, decided(one=replace(known, owed_since=NOON.timestamp() + 60)))
    assert again.status.tasks[0].owed_since == "2026-11-21T12:00:00Z", "what is on record stays"
    started = look(outcome.status, decided(one=placed()))
    assert started.status.tasks[0].owed_since is None


# --- the whole


def test_a_look_at_a_job_at_its_goal_changes_nothing() -> None:
    before = look(status(running()), NOTHING_DECIDED, _1=seen()).status
    outcome = look(before, NOTHING_DECIDED, at_s=150, _1=seen())
    assert (outcome.changed, outcome.actions) == (False, ())
    assert outcome.status == before


def test_usage_goes_with_the_next_change() -> None:
    before = look(status(running()), NOTHING_DECIDED, _1=seen()).status
    moved = look(before, NOTHING_DECIDED, at_s=3600, _1=seen(report=report(phase="Running", progress={"step": 5}))).status
    assert moved.usage.gpu_hours == 2.0


def test_reasons_are_kept_once_each_and_no_more_once_they_are_over() -> None:
    before = JobStatus()
    for number, reason in enumerate(
        ["3 of 4 nodes free, at 14:20", "2 of 4 nodes free, at 14:50", *(f"full {'x' * n}" for n in range(12))]
    ):
        seconds = 120 + 40 * number
        outcome = look(before, decided(worded_s=seconds - 35, one=waiting(reason)), at_s=seconds)
        before = outcome.status
    (task,) = before.tasks
    assert [each.reason for each in task.waits[:2]] == ["3 of 4 nodes free, at 14:20", "full "]
    assert (len(task.waits), task.waits[-1].reason) == (8, "full " + "x" * 11)
    started = look(before, decided(one=placed()), at_s=900).status
    assert started.tasks[0].waits == task.waits
