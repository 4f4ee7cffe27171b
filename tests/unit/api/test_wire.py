"""What programs write is read as far as it goes: of a newer version, of an older one, and where somebody has written nonsense."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.hostile import FAILED_REPORT, JOB_STATUS, SCHEDULE_STATUS, TEAM_STATUS, plain

from tuneyard.api import AttemptState, ClusterStatus, JobStatus, Phase
from tuneyard.api.base import Fields, StatusFields
from tuneyard.api.limits import LONGEST_MESSAGE
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.api.team import TeamStatus
from tuneyard.api.wire import read

CLUSTER_STATUS = {"healthy": True, "nodes": [{"name": "gpu-0", "sku": "h100-80gb", "gpus": 8, "free": 8}]}
WRITTEN: list[tuple[type[Fields], dict[str, Any]]] = [
    (JobStatus, JOB_STATUS),
    (AttemptState, FAILED_REPORT),
    (ScheduleStatus, SCHEDULE_STATUS),
    (TeamStatus, TEAM_STATUS),
    (ClusterStatus, CLUSTER_STATUS),
]


def groups_of(model: Any, value: Any) -> list[dict[str, Any]]:
    """The mapping of each group of fields in `value`, at any depth."""
    if isinstance(model, StatusFields):
        return [value] + [
            group for name, field in type(model).model_fields.items() for group in groups_of(getattr(model, name), value.get(field.alias))
        ]
    if isinstance(model, list):
        return [group for inner, found in zip(model, value or [], strict=True) for group in groups_of(inner, found)]
    return []


@settings(max_examples=200)
@given(st.sampled_from(WRITTEN), st.data())
def test_fields_of_a_newer_version_change_nothing_and_are_written_back(written: tuple[type[Fields], Any], data: st.DataObject) -> None:
    model, sound = written[0], written[0].model_validate(written[1])
    newer: dict[str, Any] = sound.model_dump(mode="json", by_alias=True)
    groups = groups_of(sound, newer)
    for group in data.draw(st.lists(st.sampled_from(groups), min_size=1, max_size=5)):
        group[data.draw(st.sampled_from(["newField", "grace", "x-y"]))] = data.draw(
            st.one_of(plain, st.lists(st.integers(-5, 5)), st.just({"a": {"b": [1]}}))
        )
    found = read(model, newer)
    assert (found.problems, found.lost) == ("", "")
    assert found.value.model_dump(mode="json", by_alias=True) == newer


def test_there_are_groups_below_groups() -> None:
    sound = JobStatus.model_validate(JOB_STATUS)
    assert len(groups_of(sound, sound.model_dump(mode="json", by_alias=True))) > 5


def damaged(*path: str | int, value: Any = None, gone: bool = False) -> dict[str, Any]:
    status = deepcopy(JOB_STATUS)
    holder: Any = status
    for step in path[:-1]:
        holder = holder[step]
    if gone:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return status


@pytest.mark.parametrize(
    ("status", "lost"),
    [
        (damaged("attempts", 0, "token", gone=True), "attempts.0.token: Field required"),
        (damaged("attempts", 0, "phase", value="Hibernating"), "attempts.0.phase: Input should be 'Pending'"),
        (damaged("attempts", 0, "placement", "workers", gone=True), "attempts.0.placement.workers: Field required"),
        (damaged("attempts", 0, "placement", value="member-1"), "attempts.0.placement: Input should be"),
        (damaged("attempts", 0, "endedAt", value="soon"), "attempts.0.endedAt: Value error, 'soon' is not a time"),
        (damaged("attempts", 0, "wokenAt", value="soon"), "attempts.0.wokenAt: Value error, 'soon' is not a time"),
        (damaged("attempts", 0, "door", value="ajar"), "attempts.0.door: Input should be '', 'opening'"),
        (damaged("attempts", 0, value=[]), "attempts.0: Input should be"),
        (damaged("attempts", value={"0": {}}), "attempts: Input should be a valid list"),
        (damaged("phase", value="Hibernating"), "phase: Input should be"),
        (damaged("tasks", 0, "name", gone=True), "tasks.0.name: Field required"),
    ],
)
def test_what_decisions_hang_on_is_lost_where_it_cannot_be_read(status: dict[str, Any], lost: str) -> None:
    found = read(JobStatus, status)
    assert found.lost.startswith(lost)
    assert found.lost in found.problems


@pytest.mark.parametrize(
    "status",
    [
        damaged("message", value="x" * 700_000),
        damaged("attempts", 0, "message", value={"a": 1}),
        damaged("attempts", 0, "lastStep", value=-1),
        damaged("usage", value="much"),
        damaged("conditions", value=[{"type": "Valid"}]),
        damaged("expectedStart", value="soon"),
        damaged("progress", value=3),
    ],
)
def test_what_is_for_people_alone_is_no_loss(status: dict[str, Any]) -> None:
    found, sound = read(JobStatus, status), JobStatus.model_validate(JOB_STATUS)
    assert found.problems
    assert found.lost == ""
    assert [(each.number, each.token, each.placement) for each in found.value.attempts] == [
        (each.number, each.token, each.placement) for each in sound.attempts
    ]


def test_of_a_report_what_can_be_read_counts() -> None:
    found = read(
        AttemptState,
        {
            "phase": "Running",
            "observedAt": "0001-01-01T00:00:00",
            "message": "x" * 700_000,
            "progress": {"step": -1, "of": 10, "loss": 2.0},
            "ranks": [{"rank": 0, "pod": "a"}, {"rank": -1, "pod": "b"}, {"pod": "c"}],
            "failure": {"kind": "Bogus", "message": "m"},
            "checkpointStep": 7,
        },
    )
    state = found.value
    assert (state.phase, state.checkpoint_step, state.progress.of, state.progress.step) == (Phase.RUNNING, 7, 10, 0)
    assert (state.observed_at, state.failure, [rank.pod for rank in state.ranks]) == ("", None, ["a", "c"][:1])
    assert state.message == "x" * LONGEST_MESSAGE
    assert "observedAt: Value error, '0001-01-01T00:00:00' is not a time" in found.problems


@pytest.mark.parametrize("found", ["x", 5, [], ["a"], True])
def test_what_is_no_object_at_all_is_an_empty_one_and_lost(found: Any) -> None:
    assert read(JobStatus, found).value == JobStatus()
    assert read(JobStatus, found).lost


def test_no_status_is_a_fresh_one() -> None:
    assert read(JobStatus, None) == read(JobStatus, {})
    assert read(JobStatus, None).problems == ""
