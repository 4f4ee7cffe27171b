"""What raises on account of one object: it rests, longer each time, until somebody changes it; the reason is on record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.attempts import NOON, UID, attempt, goal, job, report, running, seen, status
from tests.builders.worlds import ask

from tuneyard.api import JobStatus, NodeInventory, Phase
from tuneyard.api.cluster import Cluster
from tuneyard.federation import POLICIES, NativeScheduler, Undecidable
from tuneyard.federation.native import SWITCH
from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.decisions import NOTHING_DECIDED
from tuneyard_operators.hub.goals import LARGEST_SPEC, goal_of
from tuneyard_operators.hub.guard import Guard, Unreadable, reason_of, with_stalled
from tuneyard_operators.hub.inventory import counted, inventory, kept_of_node
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.outcomes import Verb
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import JOBSPEC, SECRET, Invalid
from tuneyard_operators.rendering import Defaults

SETTINGS = Settings()
DEFAULTS = Defaults(image="registry/tuneyard:1", output="s3://tuneyard/jobs")


# --- the guard


def test_an_object_rests_longer_each_time_and_not_once_it_was_changed() -> None:
    now = [0.0]
    guard: Guard[str] = Guard("team", clock=lambda: now[0])
    pauses = []
    for _ in range(9):
        guard.failed("maps", 1, ValueError("x"))
        began = now[0]
        while guard.rests("maps", 1):
            now[0] += 1.0
        pauses.append(now[0] - began)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    guard.failed("maps", 1, ValueError("x"))
    assert not guard.rests("maps", 2), "its spec was changed"
    assert not guard.rests("ads", 1)
    guard.well("maps")
    assert not guard.rests("maps", 1)


def test_a_reason_is_short_and_holds_no_secret() -> None:
    assert reason_of(Unreadable("it cannot be read: cron")) == "it cannot be read: cron"
    assert reason_of(Invalid(422, "spec.x: too long")) == "422: spec.x: too long"
    assert reason_of(KeyError("key")) == "the hub cannot handle it: KeyError: 'key'"
    assert len(reason_of(ValueError("x" * 10**6))) < 10_000
    assert "hunter22" not in reason_of(ValueError("s3://user:hunter22@host/x"))


def test_the_condition_stays_while_the_reason_does_and_goes_with_it() -> None:
    first = with_stalled([{"type": "Valid", "status": "True"}, "nonsense"], "it cannot be read", 1, NOON)
    again = with_stalled(first, "it cannot be read", 1, NOON.replace(hour=13))
    assert again == first
    assert [each["type"] for each in first] == ["Valid", "Stalled"]
    assert with_stalled(first, "", 2, NOON) == [{"type": "Valid", "status": "True"}]
    assert with_stalled("nonsense", "", 2, NOON) == []


# --- a job whose report, status or spec is unreadable


def test_a_bad_date_in_a_report_is_not_taken_over() -> None:
    before = status(attempt(created=True))
    bad = report(phase="Running", observed_at="")
    after = advance(
        goal(), before, {"bot-one-1": seen(report=bad, unreadable="observedAt: is not a time")}, NOTHING_DECIDED, NOON, SETTINGS
    ).status
    assert after.attempts[0].started_at == "2026-11-21T12:00:00Z"
    assert "its report cannot be read in full (observedAt: is not a time)" in after.message


def test_an_attempt_that_failed_without_saying_why_has_failed() -> None:
    after = advance(goal(), status(running()), {"bot-one-1": seen(report=report(phase="Failed"))}, NOTHING_DECIDED, NOON, SETTINGS).status
    assert (after.attempts[0].phase, after.attempts[0].failure) == (Phase.FAILED, "Internal")


def held(spec: dict[str, Any], stored: Any = None, **metadata: Any) -> dict[str, Any]:
    own = {"name": "bot", "namespace": "maps", "uid": UID, "generation": 1, "creationTimestamp": "2026-11-21T12:00:00Z", **metadata}
    return {"metadata": own, "spec": spec, **({"status": stored} if stored is not None else {})}


def test_an_unreadable_spec_can_be_cancelled_and_nothing_more_of_it_starts() -> None:
    aim = goal_of(held({"tasks": [{"name": "x", "process": {"command": 5}}], "cancelled": True}), DEFAULTS)
    assert (aim.job.spec.cancelled, "process.command" in aim.problem) == (True, True)
    known = status(running(task="train"))
    going = advance(aim, known, {"bot-train-1": seen()}, NOTHING_DECIDED, NOON, SETTINGS)
    assert (going.status.attempts[0].stopping, going.ready) == ("Cancelled", ())
    aim = goal_of(held({"tasks": [{"name": "x", "process": {"command": 5}}]}, finalizers=["tuneyard.dev/members"]), DEFAULTS)
    over = status(running(task="train", ended_at="2026-11-21T12:00:00Z", cleaned=True, failure="Network"))
    waits = advance(aim, over, {}, NOTHING_DECIDED, NOON, SETTINGS)
    assert (waits.ready, waits.actions) == ((), ())
    assert waits.status.message.startswith("nothing further of it starts: ")


def test_a_spec_that_no_pod_could_take_is_refused() -> None:
    spec = job(setup=["x" * 60_000, "y" * 60_000]).to_yaml_dict()["spec"]
    assert f"but a pod takes at most {LARGEST_SPEC:,}" in goal_of(held(spec), DEFAULTS).problem


@pytest.mark.parametrize("stored", [5, {"attempts": 5}, {"attempts": [5, {"placement": {"cluster": 3}}], "conditions": "x", "phase": []}])
def test_the_last_resort_reads_names_alone(stored: Any) -> None:
    item = held({"cancelled": True}, stored if isinstance(stored, dict) else {})
    assert last_resort.is_cancelled(item)
    assert list(last_resort.left_on_members(item)) == []
    assert last_resort.cancelled_status(item, "broken", NOON)["phase"] == "Cancelled"


def test_the_last_resort_knows_what_is_left_and_says_a_reason_once() -> None:
    own = {"name": "bot-train-1", "placement": {"cluster": "east"}, "placedAt": "nonsense"}
    item = held({}, {"attempts": [own, {**own, "name": "gone", "cleaned": True}]})
    assert list(last_resort.left_on_members(item)) == [("east", "bot-train-1")]
    change = last_resort.stalled_status(item, "broken", NOON)
    assert change["message"] == "broken"
    assert last_resort.stalled_status(held({}, change), "broken", NOON) == {}


# --- nodes of a member


@pytest.mark.parametrize(("amount", "gpus"), [("8", 8), ("1k", 1000), ("²", 0), ("٣", 0), ("-1", 0), ("", 0), (None, 0), ("9" * 400, 0)])
def test_gpus_are_counted_by_digits_alone(amount: Any, gpus: int) -> None:
    assert counted(amount) == gpus


def cluster(**spec: Any) -> Cluster:
    skus = [{"name": "h100-80gb", "nodes": 9, "gpusPerNode": 8}]
    return Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": skus, **spec}})


def node(**changes: Any) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": ready}, **changes}


def test_a_taint_without_a_key_keeps_pods_out() -> None:
    (found,) = inventory(cluster(), [kept_of_node(node(spec={"taints": [{"effect": "NoSchedule"}, {}]}))], [])
    assert (found.free, found.ready) == (0, False)


def test_a_machine_of_a_billion_gpus_is_one_of_many() -> None:
    allocatable = {"allocatable": {"nvidia.com/gpu": "999999999"}, "conditions": [{"type": "Ready", "status": "True"}]}
    assert inventory(cluster(), [kept_of_node(node(status=allocatable))], [])[0].gpus == 1024


@pytest.mark.parametrize(
    "template", [{"spec": 5}, {"spec": {"tolerations": 5}}, {"spec": {"tolerations": [{"key": []}]}}, {"metadata": []}]
)
def test_a_pod_template_has_the_shape_of_one(template: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="podTemplate"):
        cluster(podTemplate=template)


# --- an ask that no cycle gets past


class OneMember:
    name = "east"
    cluster = cluster()
    nodes = (NodeInventory(name="n1", sku="h100-80gb", gpus=8, free=8),)

    def inventory(self) -> Any:
        return self.nodes


def is_placed(placements: Placements, name: str) -> bool:
    return placements.decided(("maps", name), lambda _name: None).tasks["train"].place is not None


def reason_of_waiting(placements: Placements, name: str) -> str:
    verdict = placements.decided(("maps", name), lambda _name: None).tasks["train"].verdict
    return verdict.reason if verdict is not None else ""


def test_an_ask_that_makes_a_cycle_raise_is_set_aside_and_the_others_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    placements = Placements(POLICIES["tuneyard"], JobRecords())
    placements.want(("maps", "bad"), {"train": ask("maps/bad", 4, priority="high")}, 0)
    placements.want(("maps", "good"), {"train": ask("maps/good", 4)}, 0)
    placements.sync(("maps", "runs"), {}, JobStatus(), 0)

    def break_on_bad(finder: Any, own: Any, feasibility: Any) -> Any:
        if own.job == "maps/bad":
            raise OverflowError("too large")
        return known(finder, own, feasibility)

    from tuneyard.federation.placement import Finder

    known = Finder.find
    monkeypatch.setattr(Finder, "find", break_on_bad)
    with pytest.raises(Undecidable):
        placements.cycle([OneMember()], {}, 1.0)  # type: ignore[list-item]
    placements.start_over(1.0)
    assert placements.cycle([OneMember()], {}, 1.0) == [("maps", "good")]  # type: ignore[list-item]
    assert "OverflowError: too large" in reason_of_waiting(placements, "bad")
    with pytest.raises(Undecidable):
        placements.cycle([OneMember()], {}, 12.0)  # type: ignore[list-item]
    placements.start_over(12.0)
    assert is_placed(placements, "good"), "what was decided stays decided"
    assert placements.scheduler.attempt("maps/good", "train") is not None
    monkeypatch.setattr(Finder, "find", known)
    assert placements.cycle([OneMember()], {}, 20.0) == []  # type: ignore[list-item]
    assert placements.cycle([OneMember()], {}, 33.0) == [("maps", "bad")]  # type: ignore[list-item]


def test_an_ask_that_the_core_cannot_take_in_is_set_aside_and_the_others_start() -> None:
    placements = Placements(POLICIES["tuneyard"], JobRecords())
    placements.want(("maps", "bad"), {"train": ask("maps/bad", 1 << 70)}, 0)
    placements.want(("maps", "good"), {"train": ask("maps/good", 4)}, 0)
    if isinstance(placements.scheduler, NativeScheduler):
        with pytest.raises(Undecidable):
            placements.cycle([OneMember()], {}, 1.0)  # type: ignore[list-item]
        placements.start_over(1.0)
    placements.cycle([OneMember()], {}, 1.0)  # type: ignore[list-item]
    assert is_placed(placements, "good")
    assert not is_placed(placements, "bad")


# --- paths of API servers


def test_a_name_cannot_leave_its_place() -> None:
    assert SECRET.path("maps", "../../x/secrets/y") == "/api/v1/namespaces/maps/secrets/..%2F..%2Fx%2Fsecrets%2Fy"
    assert JOBSPEC.path("maps", "bot", subresource="status").endswith("/namespaces/maps/jobspecs/bot/status")


def test_a_deleted_job_with_an_unreadable_report_is_cleaned_and_let_go() -> None:
    known = status(running())
    unreadable = seen(report=report(), unreadable="all of it")
    going = advance(goal(deleted=True), known, {"bot-one-1": unreadable}, NOTHING_DECIDED, NOON, SETTINGS)
    assert [action.verb for action in going.actions] == [Verb.STOP] or going.status.attempts[0].ended_at
