"""The hub's decisions on objects as nobody should write them: they raise nothing, and what they would store can be read again.

tests/cluster/test_hub_survives.py writes the same objects into a running hub.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.builders import hostile
from tests.builders.attempts import NOON, UID, seen
from tests.builders.hostile import changed

from tuneyard.api import Cluster, JobStatus, NodeInventory, Schedule
from tuneyard.api.limits import LONGEST_MESSAGE
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.api.team import TeamStatus
from tuneyard.api.wire import read
from tuneyard.federation import POLICIES, attempts_of, member_of, read_team
from tuneyard.schedules import advance_schedule
from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.attempt_records import report_of
from tuneyard_operators.hub.decisions import NOTHING_DECIDED
from tuneyard_operators.hub.goals import goal_of, status_of
from tuneyard_operators.hub.inventory import inventory, kept_of_node
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.status_size import BUDGET_BYTES, size_of
from tuneyard_operators.hub.teams import _status
from tuneyard_operators.hub.usage import counted
from tuneyard_operators.rendering import Defaults

DEFAULTS = Defaults(image="registry/tuneyard:1", output="s3://tuneyard/jobs")
KEY = ("maps", "bot")
SKUS = [{"name": "h100-80gb", "nodes": 9, "gpusPerNode": 8}, {"name": "cpu", "nodes": 1, "gpusPerNode": 4}]


def item(spec: Any, status: Any, **metadata: Any) -> dict[str, Any]:
    own = {"name": "bot", "namespace": "maps", "uid": UID, "generation": 1, "creationTimestamp": hostile.NOON, **metadata}
    return {"metadata": own, "spec": spec, "status": status}


class OneMember:
    name = "member-1"
    cluster = Cluster.model_validate({"metadata": {"name": "member-1"}, "spec": {"skus": SKUS}})
    nodes = tuple(NodeInventory(name=f"gpu-{n}", sku="h100-80gb", gpus=8, free=8) for n in range(3))

    def inventory(self) -> Any:
        return self.nodes


def test_a_refusal_that_is_longer_than_a_condition_is_cut() -> None:
    made = item({**hostile.SMALL_JOB, "storage": {"output": "x" * 5000}}, None)
    goal = goal_of(made, DEFAULTS)
    assert len(goal.problem) > LONGEST_MESSAGE
    after = advance(goal, status_of(made).value, {}, NOTHING_DECIDED, NOON, Settings()).status
    (valid,) = [condition for condition in after.conditions if condition.type == "Valid"]
    assert len(valid.message) == LONGEST_MESSAGE


@settings(max_examples=300)
@given(
    spec=st.one_of(changed(hostile.FULL_JOB), changed(hostile.SMALL_JOB)),
    status=st.one_of(st.none(), changed(hostile.JOB_STATUS)),
    report=st.one_of(changed(hostile.REPORT), changed(hostile.FAILED_REPORT)),
    ray=changed(hostile.RAY_STATUS),
    deleted=st.booleans(),
)
def test_a_job(spec: Any, status: Any, report: Any, ray: Any, deleted: bool) -> None:
    made = item(spec, status, finalizers=["tuneyard.dev/members"], **({"deletionTimestamp": hostile.NOON} if deleted else {}))
    goal, before = goal_of(made, DEFAULTS), status_of(made).value
    told, unreadable = report_of({"metadata": {"name": "nobody-1"}, "status": report})
    look = seen(
        report=told, unreadable=unreadable, rayjob={"metadata": {"name": "nobody-1"}, "status": ray if isinstance(ray, dict) else {}}
    )
    placements, now = Placements(POLICIES["tuneyard"], JobRecords()), NOON.timestamp()
    placements.supply.learn_skus([OneMember()])  # type: ignore[list-item]
    placements.sync(KEY, last_resort.stored_spec(made), before, now)
    observed = {attempt.name: look for attempt in before.attempts}
    outcome = advance(goal, before, observed, placements.decided(KEY, lambda _name: OneMember.cluster), NOON, Settings())
    placements.want(KEY, outcome.asks, now)
    placements.cycle([OneMember()], {}, now)  # type: ignore[list-item]
    after = advance(goal, before, observed, placements.decided(KEY, lambda _name: OneMember.cluster), NOON, Settings()).status
    assert size_of(after) <= BUDGET_BYTES
    assert JobStatus.model_validate(after.model_dump(mode="json", by_alias=True)) == after
    list(attempts_of("maps/bot", last_resort.stored_spec(made), "maps", after, now, 1.0))
    if deleted:
        assert not outcome.ready
    last_resort.cancelled_status(made, "r", NOON)
    list(last_resort.left_on_members(made))


@settings(max_examples=100)
@given(spec=changed(hostile.SCHEDULE), status=changed(hostile.SCHEDULE_STATUS))
def test_a_schedule(spec: Any, status: Any) -> None:
    try:
        schedule = Schedule.model_validate({"metadata": {"name": "nightly"}, "spec": spec})
    except ValidationError:
        return
    step = advance_schedule("nightly", schedule.spec, read(ScheduleStatus, status).value, NOON, (), NOON.replace(year=2027))
    ScheduleStatus.model_validate(step.status.model_dump(mode="json", by_alias=True))


@settings(max_examples=100)
@given(spec=changed(hostile.TEAM), status=changed(hostile.TEAM_STATUS))
def test_a_team(spec: Any, status: Any) -> None:
    made = item(spec, status)
    team, unreadable = read_team(made, NOON)
    assert team.closed or not unreadable
    placements = Placements(POLICIES["tuneyard"], JobRecords())
    placements.set_teams([team])
    placements.cycle([OneMember()], {}, NOON.timestamp())  # type: ignore[list-item]
    TeamStatus.model_validate(counted(_status(made), (), NOON).model_dump(mode="json", by_alias=True))


@settings(max_examples=150)
@given(spec=changed(hostile.CLUSTER), nodes=st.lists(changed(hostile.NODE), max_size=3))
def test_a_member(spec: Any, nodes: list[Any]) -> None:
    try:
        cluster = Cluster.model_validate({"metadata": {"name": "east"}, "spec": spec})
    except ValidationError:
        cluster = OneMember.cluster
    kept = []
    for number, node in enumerate(nodes):
        try:
            kept.append(kept_of_node({**node, "metadata": {"labels": node["metadata"]["labels"], "name": f"n{number}"}}))
        except (AttributeError, KeyError, TypeError):
            continue  # its cache leaves it out, and says so
    placements = Placements(POLICIES["tuneyard"], JobRecords())
    placements.scheduler.set_member(member_of(cluster, inventory(cluster, kept, [])))
    placements.scheduler.cycle(NOON.timestamp())
