"""What becomes of a job next: one look at goal, status and members, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.attempts import after, attempt, goal, job, pod, process, rayjob, report, running, seen, status, train

from tuneyard.api import JobStatus, Phase, TaskStatus
from tuneyard_operators.hub.decisions import NOTHING_DECIDED
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outcomes import Outcome, Verb
from tuneyard_operators.hub.settings import Settings

SETTINGS = Settings()
NOTHING = Observed()
KEY = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}


def look(aim: Goal, before: JobStatus, at_s: float = 120, **observed: Observed) -> Outcome:
    """One look; observations by attempt number, as `_1=…`."""
    by_number = {f"_{own.number}": own.name for own in before.attempts}
    return advance(aim, before, {by_number[number]: what for number, what in observed.items()}, NOTHING_DECIDED, after(at_s), SETTINGS)


def verbs(outcome: Outcome) -> list[str]:
    return [action.verb for action in outcome.actions]


def test_a_new_job_is_held_and_asks_for_a_place() -> None:
    outcome = look(goal(has_finalizer=False), JobStatus())
    assert (outcome.status.phase, outcome.ready, verbs(outcome)) == (Phase.QUEUED, ("one",), [Verb.ADD_FINALIZER])


def test_a_spec_that_cannot_work_fails_before_it_starts_and_starts_once_corrected() -> None:
    failed = look(goal(problem="no output"), JobStatus()).status
    assert (failed.phase, failed.message) == (Phase.FAILED, "no output")
    assert look(goal(problem="no output"), failed).status == failed
    assert look(goal(), failed).ready == ("one",)


def test_a_job_whose_problem_may_pass_waits_and_can_be_cancelled() -> None:
    waiting = look(goal(problem="no template", may_pass=True), JobStatus())
    assert (waiting.status.phase, waiting.status.message, waiting.ready) == (Phase.PENDING, "waits: no template", ())
    assert waiting.status.tasks == []
    assert look(goal(), waiting.status).ready == ("one",)
    failed = look(goal(problem="wrong"), waiting.status).status
    assert failed.phase is Phase.FAILED
    assert look(goal(problem="no template", may_pass=True), failed).status.phase is Phase.PENDING
    cancelled = look(goal(job(cancelled=True), problem="no template", may_pass=True), waiting.status).status
    assert cancelled.phase is Phase.CANCELLED


def test_a_running_job_whose_template_cannot_be_read_any_more_goes_on_and_nothing_new_is_started() -> None:
    outcome = look(goal(problem="no template", may_pass=True), status(running()), _1=seen(report=report(phase="Running")))
    assert (outcome.status.phase, verbs(outcome), outcome.ready) == (Phase.RUNNING, [], ())
    ended = status(attempt(ended_at="2026-11-21T12:01:30Z", phase=Phase.SUCCEEDED), tasks=[TaskStatus(name="one", phase=Phase.SUCCEEDED)])
    assert look(goal(problem="no template", may_pass=True), ended).status.phase is Phase.SUCCEEDED
    unplaced = look(goal(problem="no template", may_pass=True), status(attempt()), _1=NOTHING)
    assert Verb.START not in verbs(unplaced)


def test_a_search_comes_after_what_the_tuned_task_reads_and_before_the_tuned_task() -> None:
    chat = train("chat")
    chat["train"]["data"] = {"from": "corpus", "path": "train.jsonl", "format": "chat"}
    aim = goal(job(tasks=[process("corpus"), chat, {"name": "search", "tune": {"task": "chat"}}]))
    done = [{"name": "corpus", "phase": "Succeeded"}, {"name": "search", "phase": "Succeeded"}]
    ready = [look(aim, JobStatus.model_validate({"tasks": done[:count]})).ready for count in range(3)]
    assert ready == [("corpus",), ("search",), ("chat",)]


def test_a_server_without_requests_gives_its_machines_back_until_its_job_is_changed() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    why = "no request for 900 s, so its machines were given back"
    aim = goal(job(tasks=[serve], env=[KEY]), generation=4)

    slept = look(aim, status(running()), _1=seen(report=report(phase="Preempted", idle=True, message=why)))
    assert (verbs(slept), slept.ready) == ([Verb.DOOR], ())
    attempts = slept.status.attempts
    assert (attempts[0].failure, attempts[0].message, attempts[0].asleep_at) == ("Preempted", why, 4)
    assert slept.status.message == f"asleep: one: {why}; tuneyard resume bot starts it again"
    again = look(aim, slept.status, _1=NOTHING)
    assert (verbs(again), again.ready, again.status.phase) == ([], (), Phase.QUEUED)

    resumed = look(goal(job(tasks=[serve], env=[KEY]), generation=5), again.status, _1=NOTHING)
    assert (verbs(resumed), resumed.ready, resumed.status.attempts[0].sleeps) == ([], ("one",), False)
    held = look(goal(job(tasks=[serve], env=[KEY], suspend=True), generation=5), again.status, _1=NOTHING)
    assert (verbs(held), held.ready, held.status.message.partition(":")[0]) == ([], (), "suspended")
    assert look(goal(job(tasks=[serve], env=[KEY]), generation=6), held.status, _1=NOTHING).ready == ("one",)


def test_a_sleeping_server_gives_its_machines_back_and_keeps_a_door_until_the_next_one_answers() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    aim = goal(job(tasks=[serve], env=[KEY]), generation=4)
    idle = {"phase": "Preempted", "idle": True, "message": "no request for 900 s"}
    opening = pod("bot-one-1-door", conditions=[{"type": "Ready", "status": "False"}])
    opening["metadata"]["labels"] = {"tuneyard.dev/door": "yes"}
    open_door = opening | {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    kept = Observed(report=report(**idle), secret=True, pods=[open_door])

    slept = look(aim, status(running()), _1=seen(report=report(**idle), secret=True))
    leaves = look(aim, slept.status, _1=Observed(report=report(**idle), secret=True, pods=[pod("bot-worker", head=False), opening]))
    assert [(own.door, own.cleaned) for own in (slept.status.attempts[0], leaves.status.attempts[0])] == [("opening", False)] * 2
    waits = look(aim, leaves.status, _1=kept)
    assert (verbs(waits), waits.ready) == ([], ())
    assert (waits.status.attempts[0].door, waits.status.attempts[0].cleaned) == ("open", True), "its GPUs are free"
    assert waits.status.message.endswith("the next request or tuneyard resume bot starts it again")
    assert verbs(look(aim, waits.status, _1=replace(kept, pods=[]))) == [Verb.DOOR], "a door that is gone is made again"

    asked = replace(kept, report=report(**idle, askedAt="2026-11-21T12:01:59Z"))
    woken = look(aim, waits.status, _1=asked)
    assert (verbs(woken), woken.ready, woken.actions[0].told) == ([Verb.TELL], ("one",), "it waits for machines")
    placed = status(*woken.status.attempts, running(2))
    loads = look(aim, placed, _1=asked, _2=seen(report=report("bot-one-2", phase="Running", progress={"summary": "loading the engine"})))
    assert [(action.verb, action.told) for action in loads.actions] == [(Verb.TELL, "it has machines, and starts: loading the engine")]
    serving = seen(report=report("bot-one-2", phase="Running", progress={"summary": "serving at http://here"}))
    (last,) = look(aim, loads.status, _1=asked, _2=serving).actions
    assert (last.verb, last.attempt and last.attempt.number, last.successor and last.successor.number) == (Verb.CLEAN, 1, 2)
    elsewhere = status(*woken.status.attempts, running(2, placement=running().placement.model_copy(update={"cluster": "west"})))
    assert look(aim, elsewhere, _1=asked, _2=serving).actions[0].successor is None


def test_a_door_that_closes_before_the_next_server_answers_leaves_the_address_to_it() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    ended = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.PREEMPTED, "failure": "Preempted", "cleaned": True}
    woken = running(asleep_at=4, woken_at="2026-11-21T12:01:40Z", door="open", **ended)
    evicted = Observed(report=report(phase="Preempted", idle=True), secret=True, refused="no pods")
    loads = seen(report=report("bot-one-2", phase="Running", progress={"summary": "loading the engine"}))
    (closes,) = look(goal(job(tasks=[serve], env=[KEY]), generation=4), status(woken, running(2)), _1=evicted, _2=loads).actions
    assert (closes.verb, closes.successor and closes.successor.number) == (Verb.CLEAN, 2)


def test_a_spec_that_cannot_be_read_for_a_while_closes_no_door() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    ended = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.PREEMPTED, "failure": "Preempted", "cleaned": True}
    door = pod("bot-one-1-door")
    door["metadata"]["labels"] = {"tuneyard.dev/door": "yes"}
    asked = Observed(report=report(phase="Preempted", idle=True, askedAt="2026-11-21T12:01:59Z"), secret=True, pods=[door])
    no_room, sound = goal(problem="no memory", may_pass=True, generation=4), goal(job(tasks=[serve], env=[KEY]), generation=4)

    unread = look(no_room, status(running(asleep_at=4, door="open", **ended)), _1=asked)
    assert [(each.verb, each.told) for each in unread.actions] == [(Verb.TELL, "its job cannot start as it is: ask its owner")]
    lacking = look(replace(sound, missing="waits for the Secret bot"), unread.status, _1=asked)
    assert lacking.actions[0].told == unread.actions[0].told
    assert look(sound, unread.status, _1=asked).ready == ("one",)
    serving = seen(report=report("bot-one-2", phase="Running", progress={"summary": "serving at http://here"}))
    (closes,) = look(no_room, status(*unread.status.attempts, running(2)), _1=asked, _2=serving).actions
    assert (closes.verb, closes.successor and closes.successor.number) == (Verb.CLEAN, 2)
    cancelled = goal(job(cancelled=True), problem="no memory", may_pass=True, generation=5)
    assert verbs(look(cancelled, unread.status, _1=asked)) == [Verb.CLEAN]


def test_a_door_that_does_not_open_says_why_requests_wake_nothing() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    aim = goal(job(tasks=[serve], env=[KEY]), generation=4)
    ended = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.PREEMPTED, "failure": "Preempted", "cleaned": True}
    asleep = running(asleep_at=4, door="opening", message="no request", **ended)
    broken = pod("bot-one-1-door", containerStatuses=[{"name": "door", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])
    open_door = pod("bot-one-1-door", conditions=[{"type": "Ready", "status": "True"}])
    for each in (broken, open_door):
        each["metadata"]["labels"] = {"tuneyard.dev/door": "yes"}
    told = "asleep: one: no request; tuneyard resume bot starts it again (requests do not yet: bot-one-1-door: CrashLoopBackOff)"
    waits = look(aim, status(asleep), _1=Observed(report=report(idle=True), secret=True, pods=[broken]))
    assert waits.status.message == told
    opened = look(aim, waits.status, _1=Observed(report=report(idle=True), secret=True, pods=[open_door]))
    assert opened.status.message == "asleep: one: no request; the next request or tuneyard resume bot starts it again"
    resumed = look(goal(job(tasks=[serve], env=[KEY]), generation=5), waits.status, _1=Observed(report=report(idle=True), pods=[broken]))
    assert (resumed.ready, resumed.status.attempts[0].next_step) == (("one",), ""), "it is no advice about a later failure"
    refused = status(asleep.model_copy(update={"door": "closing", "next_step": "requests do not: no pods"}))
    assert look(goal(job(tasks=[serve], env=[KEY]), generation=5), refused, _1=NOTHING).status.attempts[0].next_step == ""


def test_a_job_that_has_ended_with_a_server_asleep_keeps_its_reason_whatever_is_changed_in_it_later() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    ended = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.PREEMPTED, "failure": "Preempted", "cleaned": True}
    asleep = status(running(asleep_at=4, **ended), started_at="2026-11-21T12:00:00Z")
    late = look(goal(job(tasks=[serve], env=[KEY], deadline=60), generation=4), asleep, _1=NOTHING).status
    assert (late.phase, late.message.partition(":")[0]) == (Phase.FAILED, "Deadline")
    changed = look(goal(job(tasks=[serve], env=[KEY], deadline=9000), generation=5), late, _1=NOTHING).status
    assert (changed.phase, changed.message) == (Phase.FAILED, late.message)
    cancelled = look(goal(job(tasks=[serve], env=[KEY], cancelled=True), generation=5), asleep, _1=NOTHING).status
    assert (cancelled.phase, cancelled.attempts[0].woken_at) == (Phase.CANCELLED, None)


@pytest.mark.parametrize("change", [{"suspend": True}, {"cancelled": True}])
def test_no_request_undoes_what_a_person_has_asked_for(change: dict[str, bool]) -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    ended = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.PREEMPTED, "failure": "Preempted", "cleaned": True}
    asleep = status(running(asleep_at=4, door="open", **ended))
    asked = Observed(report=report(phase="Preempted", idle=True, askedAt="2026-11-21T12:01:59Z"), secret=True, pods=[pod("door")])

    held = look(goal(job(tasks=[serve], env=[KEY], **change), generation=5), asleep, _1=asked)
    assert (verbs(held), held.ready, held.status.attempts[0].door) == ([Verb.CLEAN], (), "closing")
    gone = look(goal(job(tasks=[serve], env=[KEY], **change), generation=5), held.status, _1=NOTHING)
    assert (verbs(gone), gone.status.attempts[0].door) == ([], "")
    deleted = look(goal(job(tasks=[serve], env=[KEY]), generation=4, deleted=True), asleep, _1=asked)
    assert verbs(deleted) == [Verb.CLEAN], "the finalizer stays until the door is gone"
    closed = look(goal(job(tasks=[serve], env=[KEY]), generation=4, deleted=True), deleted.status, _1=NOTHING)
    assert verbs(closed) == [Verb.REMOVE_FINALIZER]


def test_where_no_door_can_be_a_sleeping_server_waits_for_its_owner() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    idle = report(phase="Preempted", idle=True, message="no request for 900 s")
    outcome = look(goal(job(tasks=[serve], env=[KEY]), generation=4), status(running()), _1=seen(report=idle, refused="no pods"))
    assert verbs(outcome) == [Verb.CLEAN]
    assert outcome.status.message == "asleep: one: no request for 900 s; tuneyard resume bot starts it again (requests do not: no pods)"


def test_a_server_that_lasted_begins_to_count_its_failures_anew() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}]}}
    aim = goal(job(tasks=[serve], env=[KEY], retries={"max": 1}))
    lost = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.FAILED, "failure": "NodeLost", "cleaned": True}
    short = [running(number, **lost) for number in (1, 2)]
    assert look(aim, status(*short)).status.phase is Phase.FAILED

    lasting = running(2, **{**lost, "ended_at": "2026-11-21T13:01:00Z"})
    assert look(aim, status(short[0], lasting), at_s=7200).ready == ("one",)
    assert look(aim, status(*short, lasting.model_copy(update={"number": 3})), at_s=7200).ready == ("one",)


@pytest.mark.parametrize("failure", ["UserError", "OutOfMemory", "Image"])
def test_a_server_that_has_served_is_tried_again_whatever_ends_it(failure: str) -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}]}}
    aim = goal(job(tasks=[serve], env=[KEY], retries={"max": 1}))
    ended = {"ended_at": "2026-11-24T12:01:30Z", "phase": Phase.FAILED, "failure": failure, "cleaned": True}
    failed = running(1, **{**ended, "started_at": "2026-11-24T12:01:00Z"})
    assert look(aim, status(failed)).status.phase is Phase.FAILED, "a first start"
    days = running(1, **ended)
    assert look(aim, status(days), at_s=300_000).ready == ("one",), "the end of a server that ran for days"

    preempted = days.model_copy(update={"phase": Phase.PREEMPTED, "failure": "Preempted"})
    first, second = (failed.model_copy(update={"number": number}) for number in (2, 3))
    assert look(aim, status(preempted, first), at_s=300_000).ready == ("one",)
    assert look(aim, status(preempted, first, second), at_s=300_000).status.phase is Phase.FAILED, "as often as retries say"


def test_a_server_sleeps_beside_a_task_that_runs() -> None:
    serve = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}]}}
    aim = goal(job(tasks=[serve, process("two")], env=[KEY]), generation=4)
    ended = running(asleep_at=4, ended_at="2026-11-21T12:01:30Z", phase=Phase.PREEMPTED, failure="Preempted", cleaned=True)

    beside = look(aim, status(ended, running(2, "two")), _2=seen(report=report("bot-two-2", phase="Running")))
    assert (verbs(beside), beside.ready) == ([], ())
    lost = {"ended_at": "2026-11-21T12:01:30Z", "phase": Phase.FAILED, "failure": "NodeLost", "cleaned": True}
    again = look(aim, status(ended, running(2, "two", **lost), running(3, "two", **lost)), at_s=91)
    assert (verbs(again), again.ready) == ([], ()), "the other task starts again after a pause"
    assert again.look_again_s
    gone = look(goal(job(tasks=[serve, process("two")], env=[KEY], cancelled=True), generation=5), status(ended), _1=NOTHING)
    assert gone.status.phase is Phase.CANCELLED


def test_a_recorded_attempt_without_a_rayjob_is_started() -> None:
    outcome = look(goal(), status(attempt()), _1=NOTHING)
    assert verbs(outcome) == [Verb.START]


def test_an_attempt_whose_rayjob_was_seen_is_never_started_again() -> None:
    outcome = look(goal(), status(running()), _1=NOTHING)
    assert Verb.START not in verbs(outcome)
    assert outcome.status.attempts[0].failure == "NodeLost"


def test_what_a_member_refuses_ends_the_attempt_and_says_why() -> None:
    refused = look(goal(), status(attempt()), _1=Observed(refused="spec.x: unknown")).status.attempts[0]
    assert (refused.failure, refused.message) == ("UserError", "the member refuses its RayJob: spec.x: unknown")


def test_an_attempt_that_is_being_created_is_not_gone() -> None:
    ended = attempt(ended_at="2026-11-21T12:01:30Z", phase=Phase.CANCELLED)
    outcome = look(goal(), status(ended), _1=Observed(underway=True))
    assert (verbs(outcome), outcome.status.attempts[0].cleaned) == ([Verb.CLEAN], False)
    assert look(goal(), status(ended), _1=NOTHING).status.attempts[0].cleaned


def test_a_look_leaves_the_status_it_was_given_as_it_was() -> None:
    before = status(running(), tasks=[])
    as_it_was = before.model_copy(deep=True)
    look(goal(job(cancelled=True)), before, _1=seen(report=report(phase="Failed", failure={"kind": "UserError", "message": "no"})))
    assert before == as_it_was


def test_nothing_is_concluded_of_a_member_that_has_not_been_listed() -> None:
    outcome = look(goal(), status(attempt()), _1=Observed(known=False))
    assert outcome.actions == ()
    assert outcome.status.attempts[0].ended_at is None


def test_a_member_that_stays_away_loses_its_attempts() -> None:
    away = Observed(known=False, unreachable_s=301, why_unreachable="timed out")
    lost = look(goal(), status(running()), _1=away).status
    assert (lost.attempts[0].failure, lost.attempts[0].cleaned) == ("NodeLost", False)
    assert "timed out" in lost.attempts[0].message


def test_what_a_lost_attempt_left_is_removed_when_its_member_returns() -> None:
    lost = running(ended_at="2026-11-21T12:01:30Z", failure="NodeLost", phase=Phase.FAILED)
    outcome = look(goal(), status(lost), _1=seen())
    assert Verb.CLEAN in verbs(outcome)


def test_progress_is_taken_from_the_report() -> None:
    state = report(phase="Running", progress={"step": 40, "of": 120, "loss": 1.5, "mfu": 0.4, "summary": "40/120"}, checkpointStep=30)
    after_look = look(goal(), status(attempt(created=True)), _1=seen(report=state)).status
    assert (after_look.phase, after_look.progress.summary, after_look.progress.mfu) == (Phase.RUNNING, "40/120", 0.4)
    assert (after_look.attempts[0].last_step, after_look.attempts[0].checkpoint_step) == (40, 30)


def test_what_is_charged_for_an_attempt_stays_with_it_once_it_was_told() -> None:
    told = look(goal(), status(running()), _1=seen(report=report(phase="Running", charged=0.5))).status
    assert told.attempts[0].charged == 0.5
    silent = look(goal(), told, _1=seen(report=report(phase="Succeeded"))).status
    assert silent.attempts[0].charged == 0.5


def test_tasks_run_in_the_order_of_their_dependencies() -> None:
    aim = goal(job(tasks=[process("one"), process("two", "one"), process("three", "one")]))
    assert look(aim, JobStatus()).ready == ("one",)
    done = look(aim, status(running()), _1=seen(report=report(phase="Succeeded"))).status
    assert look(aim, done, _1=NOTHING).ready == ("two", "three")


def test_a_job_succeeds_with_its_last_task() -> None:
    outcome = look(goal(), status(running()), _1=seen(report=report(phase="Succeeded", artifacts=["s3://b/model"])))
    assert (outcome.status.phase, outcome.status.artifacts) == (Phase.SUCCEEDED, ["s3://b/model"])
    assert verbs(outcome) == [Verb.CLEAN]


def test_a_rayjob_that_succeeded_counts_even_where_its_report_was_lost() -> None:
    outcome = look(goal(), status(running()), _1=seen(report=None, rayjob=rayjob(jobStatus="SUCCEEDED")))
    assert outcome.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        ("UserError", False),
        ("NodeLost", True),
        ("Network", True),
        ("Storage", True),
        ("OutOfMemory", False),
        ("Image", False),
        ("Internal", True),
    ],
)
def test_each_kind_of_failure_has_its_policy(kind: str, again: bool) -> None:
    state = report(
        phase="Failed", failure={"kind": kind, "message": "it broke", "nextStep": "mend it", "node": "n1", "logTail": "last line"}
    )
    failed = look(goal(), status(running()), _1=seen(report=state))
    assert failed.status.attempts[0].log_tail == "last line"
    assert (failed.status.phase is Phase.FAILED) is not again
    assert (failed.ready == ("one",)) is again
    if not again:
        assert failed.status.message == f"task one failed: {kind}: it broke; next: mend it"


def test_attempts_end_with_retries_and_wait_longer_each_time() -> None:
    def failed(number: int) -> Any:
        return running(number, ended_at="2026-11-21T12:02:00Z", failure="NodeLost", message="gone", phase=Phase.FAILED, cleaned=True)

    assert look(goal(), status(failed(1)), at_s=120).ready == ("one",)
    second = look(goal(), status(failed(1), failed(2)), at_s=121)
    assert (second.ready, second.look_again_s) == ((), 4.0)
    assert look(goal(), status(failed(1), failed(2)), at_s=126).ready == ("one",)
    last = look(goal(), status(*[failed(n) for n in range(1, 5)]), at_s=500).status
    assert (last.phase, last.message) == (Phase.FAILED, "task one failed (after 4 attempts): NodeLost: gone")


def test_a_job_that_waits_again_says_no_place() -> None:
    stopped = running(1, ended_at="2026-11-21T12:02:00Z", failure="Preempted", phase=Phase.PREEMPTED, cleaned=True)
    waits = look(goal(job(suspend=True)), status(stopped)).status
    assert (waits.phase, waits.placement) == (Phase.QUEUED, None)
    assert waits.attempts[0].placement is not None


def test_preemption_does_not_count() -> None:
    preempted = [running(n, ended_at="2026-11-21T12:02:00Z", failure="Preempted", phase=Phase.PREEMPTED, cleaned=True) for n in range(1, 9)]
    assert look(goal(), status(*preempted)).ready == ("one",)
    lost = running(9, ended_at="2026-11-21T12:02:00Z", failure="NodeLost", message="gone", phase=Phase.FAILED, cleaned=True)
    assert look(goal(), status(*preempted, lost)).ready == ("one",)


def test_cancelling_asks_for_a_checkpoint_first() -> None:
    aim = goal(job(cancelled=True))
    asked = look(aim, status(running()), _1=seen())
    assert verbs(asked) == [Verb.STOP]
    again = look(aim, asked.status, _1=seen(report=report(phase="Running").model_copy(update={"spec": stop_spec()})))
    assert (verbs(again), again.status.phase.final) == ([], False)
    done = look(aim, again.status, _1=seen(report=report(phase="Cancelled")))
    assert done.status.attempts[0].failure == "Cancelled"
    assert look(aim, done.status, _1=NOTHING).status.phase is Phase.CANCELLED


def stop_spec() -> Any:
    from tuneyard.api.attempt_report import AttemptGoal, StopRequest

    return AttemptGoal(stop=StopRequest(reason="Cancelled"))


def test_an_attempt_that_does_not_stop_is_ended_after_its_grace() -> None:
    aim = goal(job(cancelled=True))
    asked = look(aim, status(running()), at_s=120, _1=seen()).status
    assert Verb.CLEAN not in verbs(
        look(aim, asked, at_s=120 + SETTINGS.stop_grace_s + 10, _1=seen())
    )  # it hears of it with its next report
    late = look(aim, asked, at_s=120 + SETTINGS.stop_grace_s + 16, _1=seen())
    assert verbs(late) == [Verb.CLEAN]


@pytest.mark.parametrize("created", [True, False])
def test_a_job_cancelled_before_it_has_begun_is_cancelled(created: bool) -> None:
    done = look(goal(job(cancelled=True)), status(attempt(created=created)), _1=seen(report=None) if created else NOTHING).status
    assert (done.phase, done.attempts[0].failure, done.attempts[0].message) == (Phase.CANCELLED, "Cancelled", "stopped before it had begun")


def test_a_deadline_that_passes_before_a_job_has_begun_is_named_as_such() -> None:
    late = status(attempt(created=True), started_at="2026-11-21T12:00:00Z")
    done = look(goal(job(deadline="10m")), late, at_s=601, _1=seen(report=None)).status
    assert (done.phase, done.message) == (Phase.FAILED, "Deadline: the job's 600 s have passed; its checkpoints are kept")


def test_a_deleted_job_lets_go_only_when_nothing_is_left() -> None:
    aim = goal(deleted=True)
    stopping = look(aim, status(attempt(created=True)), _1=seen(report=None))
    assert verbs(stopping) == [Verb.CLEAN]
    assert Verb.REMOVE_FINALIZER not in verbs(look(aim, stopping.status, _1=seen(report=None)))
    assert verbs(look(aim, stopping.status, _1=NOTHING)) == [Verb.REMOVE_FINALIZER]


def test_an_attempt_that_was_not_created_yet_is_not_created_for_a_deleted_job() -> None:
    assert Verb.START not in verbs(look(goal(deleted=True), status(attempt()), _1=NOTHING))


def test_the_deadline_ends_a_job_that_runs() -> None:
    aim = goal(job(deadline="10m"))
    begun = status(running(), started_at="2026-11-21T12:00:00Z")
    assert look(aim, begun, at_s=300, _1=seen()).look_again_s is not None
    assert verbs(look(aim, begun, at_s=601, _1=seen())) == [Verb.STOP]


def test_a_finished_job_is_removed_after_its_time_to_live() -> None:
    aim = goal(job(ttlAfterFinished="1h"))
    done = status(running(phase=Phase.SUCCEEDED, ended_at="2026-11-21T12:02:00Z", cleaned=True), phase=Phase.SUCCEEDED)
    done.finished_at = "2026-11-21T12:02:00Z"
    assert look(aim, done, at_s=600).look_again_s == 3600 - 480
    assert verbs(look(aim, done, at_s=4000)) == [Verb.DELETE]


def test_a_suspended_job_stops_and_goes_on_when_resumed() -> None:
    held = goal(job(suspend=True))
    assert verbs(look(held, status(running()), _1=seen())) == [Verb.STOP]
    stopped = status(running(ended_at="2026-11-21T12:02:00Z", failure="Preempted", phase=Phase.PREEMPTED, cleaned=True))
    waiting = look(held, stopped)
    assert (waiting.ready, waiting.status.phase) == ((), Phase.QUEUED)
    assert look(goal(), waiting.status).ready == ("one",)


def test_a_missing_secret_is_waited_for() -> None:
    outcome = look(goal(missing="waits for the Secret hf"), JobStatus())
    assert (outcome.ready, outcome.status.message) == ((), "waits for the Secret hf")


# --- what pods tell


def test_setup_that_fails_is_the_users_error_with_its_last_lines() -> None:
    words = "the setup command `exit 1` ended with exit code 1:\nno such token"
    dead = pod(phase="Failed", containerStatuses=[{"state": {"terminated": {"exitCode": 1, "message": words}}}])
    ended = look(goal(), status(attempt(created=True)), _1=seen(report=None, pods=[dead])).status
    assert (ended.attempts[0].failure, ended.attempts[0].log_tail) == ("UserError", "no such token")
    assert ended.phase is Phase.FAILED


def test_an_image_that_cannot_be_pulled_fails_after_a_grace() -> None:
    stuck = pod(phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}])
    at_first = look(goal(), status(attempt(created=True)), at_s=10, _1=seen(report=None, pods=[stuck])).status
    assert (at_first.phase, "not found" in at_first.message) == (Phase.STARTING, True)
    later = look(goal(), status(attempt(created=True)), at_s=60, _1=seen(report=None, pods=[stuck])).status
    assert (later.phase, later.attempts[0].failure) == (Phase.FAILED, "Image")


def test_a_head_on_a_dead_node_ends_the_attempt() -> None:
    ended = look(goal(), status(running()), _1=seen(unready_nodes=frozenset({"n1"}))).status
    assert (ended.attempts[0].failure, ended.attempts[0].failed_node) == ("NodeLost", "n1")


def test_a_worker_on_a_dead_node_is_first_left_to_the_driver_to_explain() -> None:
    pods = [pod(node="n1"), pod("w", head=False, node="n2")]
    dead = {"unready_nodes": frozenset({"n2"}), "pods": pods}
    assert look(goal(), status(running()), _1=seen(**dead)).status.attempts[0].ended_at is None
    assert look(goal(), status(running()), _1=seen(silent_s=20, **dead)).status.attempts[0].failed_node == "n2"


@pytest.mark.parametrize(
    "lost",
    [
        {"containerStatuses": [{"name": "ray-worker", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        {"containerStatuses": [{"name": "ray-worker", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
    ],
)
def test_a_running_attempt_loses_nothing_with_a_pod_of_data_workers(lost: dict[str, Any]) -> None:
    data = pod("bot-data", head=False, node="n9", **lost)
    data["metadata"]["labels"]["ray.io/group"] = "data"
    seen_so = seen(pods=[pod(), data], remains=[data], silent_s=20, unready_nodes=frozenset({"n9"}))
    assert look(goal(), status(running()), at_s=4000, _1=seen_so).status.attempts[0].failure is None
    gang = seen(pods=[pod(), data | {"metadata": pod("w", head=False)["metadata"]}], silent_s=20)
    assert look(goal(), status(running()), at_s=4000, _1=gang).status.attempts[0].failure is not None


def test_the_end_of_the_autoscaler_is_not_that_of_the_attempt() -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    heads = {name: pod(containerStatuses=[{"name": name, "state": killed}]) for name in ("autoscaler", "ray-head")}
    ends = {name: look(goal(), status(running()), _1=seen(pods=[head], silent_s=20)).status for name, head in heads.items()}
    assert {name: end.attempts[0].failure for name, end in ends.items()} == {"autoscaler": None, "ray-head": "OutOfMemory"}


def test_a_new_head_pod_knows_nothing_of_the_attempt() -> None:
    replaced = seen(pods=[pod(made_s=90)], silent_s=20)
    assert look(goal(), status(running()), _1=replaced).status.attempts[0].failure == "NodeLost"


def test_host_memory_is_told_from_other_deaths() -> None:
    killed = pod("w", head=False, phase="Failed", containerStatuses=[{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}])
    ended = look(goal(), status(attempt(created=True)), _1=seen(report=None, remains=[killed])).status
    assert ended.attempts[0].failure == "OutOfMemory"


def test_a_clock_that_was_set_back_ends_nothing() -> None:
    assert look(goal(job(deadline="10m")), status(running(), started_at="2026-11-21T12:00:00Z"), at_s=-5000, _1=seen()).actions == ()
