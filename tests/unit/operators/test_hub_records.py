"""A hub from the first look at a job to the last: what is on record before it is done, and what is remembered afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.clusters.hub_in_memory import JOBS, SKU, Scene, mentions, running_hub, until

from tuneyard_operators.hub import sweep, write_pace
from tuneyard_operators.kube import CLUSTER, JOBSPEC, RAYJOB, Conflict, Kind
from tuneyard_operators.rendering import attempt_name, labels_of


@pytest.fixture
def writes_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace of statuses without weight has tests of its own (test_status_pacing)."""
    monkeypatch.setattr(write_pace, "_BETWEEN_WRITES_S", 0.05)
    monkeypatch.setattr(write_pace, "_AFTER_A_PLACEMENT_S", 0.05)


def play(scene: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with running_hub(**options) as stage:
            await scene(stage)

    asyncio.run(run())


async def finish(scene: Scene, name: str, **state: Any) -> None:
    """Have a job's attempt run, end, and leave its member."""
    attempt = await scene.started(name)
    await scene.begin(attempt)
    await until(lambda: scene.status(name).get("phase") == "Running", f"{name} runs")
    await scene.report(attempt, **(state or {"phase": "Succeeded"}))
    await scene.removed(attempt)
    await until(lambda: scene.status(name)["attempts"][0]["cleaned"], f"{name} is cleaned up")


# --- what is remembered


async def one_that_succeeded(scene: Scene) -> None:
    await scene.submit("leaf")
    await finish(scene, "leaf")


async def one_that_the_watch_tells_of_before_writes_are_answered(scene: Scene) -> None:
    scene.api.answers_after_s = 0.05
    await one_that_succeeded(scene)


async def one_that_failed_and_waits_to_try_again(scene: Scene) -> None:
    await scene.submit("leaf")
    failure = {"kind": "NodeLost", "message": "gone"}
    await finish(scene, "leaf", phase="Failed", failure=failure)
    await scene.started("leaf")


async def one_that_waits_and_was_told_why(scene: Scene) -> None:
    await scene.submit("big", workers=16)
    await scene.started("big")
    await scene.submit("leaf")
    await until(
        lambda: "no room" in scene.status("leaf").get("message", "") or "GPUs" in scene.status("leaf").get("message", ""), "a reason"
    )


async def one_that_was_preempted(scene: Scene) -> None:
    await scene.submit("leaf", workers=16)
    attempt = await scene.started("leaf")
    await scene.begin(attempt)
    await until(lambda: scene.status("leaf").get("phase") == "Running", "it runs")
    await scene.submit("big", workers=16, priority="high")
    await until(lambda: scene.status("leaf")["attempts"][0]["stopping"] == "Preempted", "it is asked to go")
    assert scene.status("leaf")["attempts"][0]["stoppedFor"].startswith("makes room for default/big")
    await scene.report(attempt, phase="Cancelled")
    await scene.removed(attempt)
    await scene.started("big")


async def one_that_is_refused(scene: Scene) -> None:
    await scene.submit("leaf", tasks=[{"name": "train", "process": {"command": 5}}])
    await until(lambda: scene.status("leaf").get("phase") == "Failed", "it is refused")


async def one_that_cannot_be_read(scene: Scene) -> None:
    await scene.submit("leaf")
    await scene.begin(await scene.started("leaf"))
    (own,) = scene.status("leaf")["attempts"]
    await scene.api.patch(JOBSPEC, "default", "leaf", {"status": {"attempts": [{**own, "number": "x"}]}}, subresource="status")
    await until(lambda: "Stalled" in str(scene.status("leaf").get("conditions")), "it is stalled")


@pytest.mark.usefixtures("writes_without_pauses")
@pytest.mark.parametrize(
    "life",
    [
        one_that_succeeded,
        one_that_the_watch_tells_of_before_writes_are_answered,
        one_that_failed_and_waits_to_try_again,
        one_that_waits_and_was_told_why,
        one_that_was_preempted,
        one_that_is_refused,
        one_that_cannot_be_read,
    ],
)
def test_a_hub_remembers_nothing_of_a_job_that_is_gone(life: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene(stage: Scene) -> None:
        await life(stage)
        assert stage.remembers("leaf"), "the walk finds it while it is there"
        attempt = stage.rayjob("leaf")
        await stage.delete("leaf")
        if attempt:
            await stage.removed(attempt)
        await stage.let_go("leaf")
        await until(lambda: not stage.remembers("leaf"), f"it is forgotten: {stage.remembers('leaf')}")
        assert stage.hub.placements.scheduler.ask("default/leaf", "train") is None
        assert all(held.job != "default/leaf" for held in stage.hub.placements.scheduler.running)

    play(scene)


@pytest.mark.usefixtures("writes_without_pauses")
def test_of_a_job_that_is_over_the_record_keeps_its_status_alone() -> None:
    async def scene(stage: Scene) -> None:
        await stage.submit("leaf")
        await finish(stage, "leaf")
        await until(lambda: stage.status("leaf").get("phase") == "Succeeded", "it succeeds")
        record = stage.hub.records.find(("default", "leaf"))
        assert record is not None
        await until(lambda: record.goal is None, "it is settled")
        assert (record.demand.tasks, record.demand.victims, record.demand.allocated) == ({}, {}, frozenset())
        assert record.stored.reading is not None

    play(scene)


def test_a_hub_remembers_nothing_of_an_orphan_that_a_sweep_has_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of its report stayed: only a status can say that an attempt is cleaned up, and no JobSpec knows this one."""
    monkeypatch.setattr(sweep, "_EVERY_S", 0.2)

    async def scene(stage: Scene) -> None:
        labels = labels_of("leaf", "default", "0123abcd-0000", "train", 1)
        name = attempt_name("leaf", "0123abcd-0000", "train", 1)
        await stage.api.create(RAYJOB, JOBS, {"metadata": {"name": name, "labels": labels}, "status": {}})
        await stage.begin(name)
        await stage.removed(name)
        await until(lambda: not stage.remembers("leaf"), f"it is forgotten: {stage.remembers('leaf')}")

    play(scene)


def test_a_cluster_that_is_removed_and_comes_back_is_shown_at_once() -> None:
    """The hub took the status that it had written to the old object for that of the new one."""

    async def scene(stage: Scene) -> None:
        clusters = stage.api.objects["Cluster"]
        await until(lambda: clusters["", "east"].get("status", {}).get("healthy"), "it is shown")
        await stage.api.delete(CLUSTER, None, "east")
        await until(lambda: stage.hub.members.get("east") is None, "it is forgotten")
        await stage.api.create(CLUSTER, None, {"metadata": {"name": "east"}, "spec": {"skus": [SKU]}})
        await until(lambda: clusters["", "east"].get("status", {}).get("healthy"), "it is shown again")

    play(scene)


def test_the_walk_finds_keys_values_and_what_callbacks_are_bound_to() -> None:
    assert mentions({("default", "leaf"): 1}, "leaf")
    assert mentions([{"a": {"x-leaf-1"}}], "leaf")
    assert not mentions({("default", "tree"): 1}, "leaf")


# --- what is on record before it is done


def test_a_rayjob_is_made_only_once_a_status_holds_its_attempt() -> None:
    async def scene(stage: Scene) -> None:
        refusals = []

        def refuse(verb: str, kind: Kind, _name: str) -> None:
            if kind.name == "JobSpec" and verb == "patch" and len(refusals) < 3 and stage.hub.placements.waiting:
                refusals.append(stage.rayjob("leaf"))
                raise Conflict(409, "it has changed")

        stage.api.refuse = refuse
        await stage.submit("leaf")
        attempt = await stage.started("leaf")
        assert refusals == ["", "", ""]
        assert [own["name"] for own in stage.status("leaf")["attempts"]] == [attempt]
        names = [(verb, kind) for verb, kind, _ in stage.api.requests if kind in ("JobSpec/status", "RayJob")]
        assert names.index(("patch", "JobSpec/status")) < names.index(("create", "RayJob"))

    play(scene)


def test_a_placement_is_allocated_until_a_status_holds_it_and_its_attempt_from_then_on() -> None:
    async def scene(stage: Scene) -> None:
        scheduler = stage.hub.placements.scheduler
        allocated: list[tuple[bool, bool]] = []

        def watch(verb: str, kind: Kind, _name: str) -> None:
            if kind.name == "JobSpec" and verb == "patch" and scheduler.attempt("default/leaf", "train") is not None:
                allocated.append((True, scheduler.attempt("default/leaf", "train/1") is not None))
                if len(allocated) == 1:
                    raise Conflict(409, "it has changed")

        stage.api.refuse = watch
        await stage.submit("leaf")
        await stage.started("leaf")
        assert allocated == [(True, False), (True, False)], "a write that fails frees nothing"
        assert scheduler.attempt("default/leaf", "train") is None
        assert scheduler.attempt("default/leaf", "train/1") is not None

    play(scene)


def test_a_look_writes_one_status() -> None:
    """From submission to start: the finalizer, and one status that holds placement, attempt and conditions."""

    async def scene(stage: Scene) -> None:
        await stage.submit("leaf")
        await stage.started("leaf")
        writes = [kind for verb, kind, name in stage.api.requests if verb == "patch" and name == "leaf"]
        assert writes == ["JobSpec", "JobSpec/status"]
        conditions = {each["type"]: each["status"] for each in stage.status("leaf")["conditions"]}
        assert conditions["Placed"] == "True"

    play(scene)


@pytest.mark.usefixtures("writes_without_pauses")
def test_a_job_of_the_same_name_starts_from_nothing() -> None:
    async def scene(stage: Scene) -> None:
        await one_that_succeeded(stage)
        await stage.delete("leaf")
        await stage.let_go("leaf")
        await stage.submit("leaf")
        attempt = await stage.started("leaf")
        assert [own["name"] for own in stage.status("leaf")["attempts"]] == [attempt]
        assert attempt.endswith("-1")

    play(scene)
