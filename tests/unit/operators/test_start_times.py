"""Milestones of the start of an attempt, from its RayJob and pods."""

from __future__ import annotations

from typing import Any

from tuneyard.api import PlacementStatus
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.start_times import start_times

PLACE = PlacementStatus(cluster="east", sku="cpu", workers=2, gpus=2, pods=1)
RAYJOB = {"metadata": {"creationTimestamp": "2026-11-26T09:00:01Z"}}


def pod(scheduled: str = "", started: str = "", ready: str = "", group: str = "gang") -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True" if at else "False", "lastTransitionTime": at or None}
        for kind, at in (("PodScheduled", scheduled), ("Ready", ready))
    ]
    state = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "ContainerCreating"}}
    status = {"conditions": conditions, "containerStatuses": [{"state": state}]}
    return {"metadata": {"labels": {"ray.io/group": group}}, "status": status}


def at(second: int) -> str:
    return f"2026-11-26T09:00:{second:02}Z"


def test_a_milestone_is_that_of_the_last_pod_and_keeps_its_first_value() -> None:
    assert start_times(None, Observed(), PLACE) is None
    alone = start_times(None, Observed(rayjob=RAYJOB, pods=[pod(at(3), at(9), at(12))]), PLACE)
    assert alone is not None
    assert (alone.created_at, alone.scheduled_at) == (at(1), None), "the gang is not complete"
    data = pod(group="data")
    some = start_times(alone, Observed(rayjob=RAYJOB, pods=[pod(at(3), at(9), at(12)), pod(at(5)), data]), PLACE)
    assert some is not None
    assert (some.scheduled_at, some.running_at) == (at(5), None)
    whole = start_times(some, Observed(rayjob=RAYJOB, pods=[pod(at(3), at(9), at(12)), pod(at(6), at(20), at(21)), data]), PLACE)
    assert whole is not None
    assert (whole.scheduled_at, whole.running_at, whole.ready_at) == (at(5), at(20), at(21))
    assert start_times(whole, Observed(pods=[pod(at(30), at(31), at(32))] * 2), PLACE) == whole


def test_a_time_that_is_none_is_left_out() -> None:
    assert start_times(None, Observed(rayjob={"metadata": {"creationTimestamp": "soon"}}, pods=[pod("x", "y", "z")] * 2), PLACE) is None
