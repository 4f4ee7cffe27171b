"""Objects that no reader can take: a hub over an API server in memory reads around them, says so, and removes them.

tests/cluster/test_hub_survives.py writes such objects into a running hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.clusters.hub_in_memory import JOBS, SETTINGS, Scene, running_hub, until
from tests.clusters.hubs import jobspec
from tests.servers.memory_api import MemoryApi

from tuneyard_operators.hub import sweep
from tuneyard_operators.kube import ATTEMPT_REPORT, CLUSTER, JOBSPEC, Kind, Unintelligible

DEEP = msgspec.Raw(b"[" * 9_000 + b"]" * 9_000)
BROAD = msgspec.Raw(b"[" + b",".join([b"[]"] * 420_000) + b"]")


def play(scene: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with running_hub(**options) as stage:
            await scene(stage)

    asyncio.run(run())


def hostile(name: str, workers: Any) -> dict[str, Any]:
    made = jobspec(name)
    (task,) = made["spec"]["tasks"]
    return {**made, "spec": {**made["spec"], "tasks": [{**task, "resources": {"workers": workers}}]}}


def conditions(scene: Scene, name: str) -> dict[str, str]:
    return {each["type"]: each["message"] for each in scene.status(name).get("conditions") or [] if each["status"] == "True"}


@pytest.mark.parametrize(("workers", "why"), [(DEEP, "nested deeper than 64 levels"), (BROAD, "MiB of memory")], ids=["deep", "broad"])
def test_a_job_that_cannot_be_read_says_so_and_stops_no_other(workers: msgspec.Raw, why: str) -> None:
    async def scene(stage: Scene) -> None:
        await stage.api.create(JOBSPEC, "default", hostile("hostile", workers))
        await stage.submit("beside")
        await stage.started("beside")
        await until(lambda: "Unreadable" in conditions(stage, "hostile"), "its condition says that it cannot be read")
        assert why in conditions(stage, "hostile")["Unreadable"]
        assert stage.status("hostile")["phase"] == "Failed"
        await until(lambda: "Unreadable" in reasons(stage, "hostile"), "an event says so")
        assert [count for (_, labels, count) in unreadable(stage) if labels == ("hub", "jobspecs")] == [1]
        async with running_hub(api=stage.api) as next_hub:
            await next_hub.submit("later")
            await next_hub.started("later")
        await stage.change("hostile", tasks=jobspec("x")["spec"]["tasks"])
        await stage.started("hostile")
        assert "Unreadable" not in conditions(stage, "hostile")
        await stage.delete("hostile")
        await stage.let_go("hostile")

    play(scene, nodes=4)


def reasons(stage: Scene, name: str) -> set[str]:
    events = stage.api.objects.get("Event", {}).values()
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


def unreadable(stage: Scene) -> list[Any]:
    samples = [sample for source in stage.hub.state.sources for sample in source()]
    return [sample for sample in samples if sample[0].name == "tuneyard_unreadable_objects"]


def test_a_job_whose_fields_are_managed_deeply_keeps_who_manages_them_and_who_submitted_it() -> None:
    async def scene(stage: Scene) -> None:
        made = jobspec("applied")
        managed = [{"manager": "argo", "operation": "Apply", "fieldsV1": DEEP}]
        metadata = {**made["metadata"], "annotations": {"tuneyard.dev/user": "ada"}, "managedFields": managed}
        await stage.api.create(JOBSPEC, "default", {**made, "metadata": metadata})
        await stage.started("applied")
        stored = stage.api.objects["JobSpec"]["default", "applied"]["metadata"]
        assert (stored["finalizers"], stored["managedFields"]) == (["tuneyard.dev/members"], managed)
        assert stage.hub.jobs.items["default", "applied"]["metadata"]["annotations"] == {"tuneyard.dev/user": "ada"}
        assert "Unreadable" not in conditions(stage, "applied")

    play(scene)


def test_a_job_with_more_labels_than_are_read_says_so_and_does_not_start() -> None:
    async def scene(stage: Scene) -> None:
        made = jobspec("labelled")
        labels = {f"a{number}": "" for number in range(90_000)}
        await stage.api.create(JOBSPEC, "default", {**made, "metadata": {**made["metadata"], "labels": labels, "finalizers": ["x/y"]}})
        await until(lambda: "metadata: labels: it would take" in conditions(stage, "labelled").get("Unreadable", ""), "it says so")
        assert stage.status("labelled")["phase"] == "Failed"
        assert stage.api.objects["JobSpec"]["default", "labelled"]["metadata"]["finalizers"] == ["x/y", "tuneyard.dev/members"]

    play(scene)


@pytest.mark.parametrize("change", ["cancelled", "deleted"])
def test_a_job_that_becomes_unreadable_while_it_runs_is_stopped_all_the_same(change: str) -> None:
    async def scene(stage: Scene) -> None:
        await stage.submit("victim")
        attempt = await stage.started("victim")
        await stage.begin(attempt)
        await until(lambda: stage.status("victim").get("phase") == "Running", "it runs")
        await stage.change("victim", tasks=DEEP)
        await until(lambda: "Unreadable" in conditions(stage, "victim"), "its condition says that it cannot be read")
        assert stage.status("victim")["phase"] == "Running"
        if change == "cancelled":
            await stage.change("victim", cancelled=True)
            await until(lambda: (stage.api.objects["AttemptReport"][JOBS, attempt].get("spec") or {}).get("stop"), "it is asked to stop")
            await stage.report(attempt, phase="Cancelled")
        else:
            await stage.delete("victim")
            await stage.report(attempt, phase="Cancelled")
        await stage.removed(attempt)
        if change == "deleted":
            await stage.let_go("victim")
        else:
            await until(lambda: stage.status("victim")["phase"] == "Cancelled", "it is cancelled")

    play(scene)


def test_what_runs_of_a_job_that_becomes_unreadable_ends_by_itself_and_nothing_further_starts() -> None:
    async def scene(stage: Scene) -> None:
        attempts = {}
        for name in ("done", "fails"):
            await stage.submit(name)
            attempts[name] = await stage.started(name)
            await stage.begin(attempts[name])
            await until(lambda name=name: stage.status(name).get("phase") == "Running", f"{name} runs")
            await stage.change(name, tasks=DEEP)
            await until(
                lambda name=name: "nothing further of it starts" in stage.status(name)["message"], "its status says so while it runs"
            )
        await until(lambda: stalled(stage) == 2, "and the metrics count it")
        await stage.report(attempts["done"], phase="Succeeded")
        await stage.removed(attempts["done"])
        await until(lambda: stage.status("done")["phase"] == "Succeeded", "its end counts")
        await stage.report(attempts["fails"], phase="Failed", failure={"kind": "NodeLost", "message": "n0 is gone"})
        await stage.removed(attempts["fails"])
        await until(lambda: stage.status("fails")["phase"] == "Queued", "it waits for a person")
        assert "nothing further of it starts" in stage.status("fails")["message"]
        assert stalled(stage) == 1
        await stage.change("fails", tasks=jobspec("x")["spec"]["tasks"])
        await stage.started("fails")
        await until(lambda: stalled(stage) == 0, "nothing is stalled")

    play(scene)


def stalled(stage: Scene) -> float:
    return next(value for source in stage.hub.state.sources for family, _, value in source() if family.name == "tuneyard_stalled_jobs")


def test_a_job_whose_status_cannot_be_read_leaves_nothing_behind_when_it_is_deleted() -> None:
    async def scene(stage: Scene) -> None:
        await stage.submit("scrambled")
        attempt = await stage.started("scrambled")
        await stage.api.patch(JOBSPEC, "default", "scrambled", {"status": {"attempts": DEEP}}, subresource="status")
        await until(lambda: "cannot be read" in stage.status("scrambled").get("message", ""), "it says so")
        assert (JOBS, attempt) in stage.api.objects["RayJob"]
        assert stalled(stage) == 1
        await stage.delete("scrambled")
        await stage.let_go("scrambled")
        assert (JOBS, attempt) not in stage.api.objects["RayJob"]

    play(scene)


def test_a_report_that_cannot_be_read_costs_no_other_job_its_attempt_and_goes_with_its_own() -> None:
    async def scene(stage: Scene) -> None:
        for name in ("forged", "beside"):
            await stage.submit(name)
            await stage.begin(await stage.started(name))
            await until(lambda name=name: stage.status(name).get("phase") == "Running", f"{name} runs")
        forged, beside = stage.rayjob("forged"), stage.rayjob("beside")
        await stage.report(forged, metrics={"loss": DEEP}, message="still here")
        await until(lambda: "cannot be read in full" in stage.status("forged")["message"], "it says so")
        await until(lambda: "1 attemptreports cannot be read" in cluster(stage)["message"], "and so does the Cluster")
        assert cluster(stage)["healthy"]
        await stage.report(beside, progress={"step": 7, "of": 9})
        await until(lambda: stage.status("beside")["attempts"][0]["lastStep"] == 7, "others are heard")
        await stage.report(forged, phase="Succeeded")
        await stage.removed(forged)
        await until(lambda: stage.status("forged")["phase"] == "Succeeded", "its plain fields are enough for its end")
        assert (JOBS, forged) not in stage.api.objects["AttemptReport"]

    play(scene)


def cluster(stage: Scene) -> dict[str, Any]:
    found: dict[str, Any] = stage.api.objects["Cluster"]["", "east"].get("status") or {}
    return found


def test_reports_that_no_attempt_has_written_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_EVERY_S", 0.05)

    async def scene(stage: Scene) -> None:
        for number in range(20):
            await stage.api.create(ATTEMPT_REPORT, JOBS, {"metadata": {"name": f"forged-{number}"}, "status": {"metrics": {"x": DEEP}}})
        await stage.submit("beside")
        attempt = await stage.started("beside")
        await stage.begin(attempt)
        await until(lambda: set(stage.api.objects["AttemptReport"]) == {(JOBS, attempt)}, "the reports of nobody are gone")

    play(scene)


class Garbled(MemoryApi):
    """A member that lists reports as no API server would, while `garbled`."""

    garbled = False

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> dict[str, Any]:
        if self.garbled and kind is ATTEMPT_REPORT:
            raise Unintelligible(0, "memory does not answer with JSON")
        return await super().list(kind, namespace, labels=labels)


def test_a_member_whose_reports_are_no_json_is_unhealthy_and_its_attempts_are_not_lost() -> None:
    async def scene() -> None:
        api = Garbled()
        await api.create(
            CLUSTER, None, {"metadata": {"name": "east"}, "spec": {"skus": [{"name": "h100-80gb", "nodes": 1, "gpusPerNode": 8}]}}
        )
        settings = replace(SETTINGS, member_lost_s=0.5, silent_s=0.5)
        api.garbled = True
        async with running_hub(api=api, settings=settings) as stage:
            await until(lambda: "attemptreports cannot be followed" in cluster(stage).get("message", ""), "the Cluster says why")
            assert not cluster(stage)["healthy"]
            member = stage.hub.members.get("east")
            assert member is not None
            assert member.heartbeat.deaf
            api.garbled = False
            await until(lambda: cluster(stage)["healthy"], "it is healthy once its reports can be read")

    asyncio.run(scene())


def test_a_namespace_cannot_fill_the_memory_of_the_hub() -> None:
    big = [{"name": f"V{number}", "value": "x" * 1_000} for number in range(20)]

    async def scene(stage: Scene) -> None:
        for number in range(10):
            await stage.api.create(JOBSPEC, "greedy", {**jobspec(f"big-{number}", namespace="greedy", workers=1, env=big)})
        await stage.submit("beside", workers=1)
        await stage.started("beside")
        beyond = await until(lambda: [key for key, why in stage.hub.jobs.unreadable.items() if "memory" in why], "some have no room")
        assert 4 <= len(beyond) < 10
        waiting = beyond[0]

        def told() -> dict[str, Any]:
            return stage.api.objects["JobSpec"].get(waiting, {}).get("status") or {}

        await until(lambda: "remove some that have ended" in told().get("message", ""), "and wait, with a reason")
        assert told()["phase"] == "Pending"
        for number in range(10):
            if ("greedy", f"big-{number}") not in beyond:
                await stage.api.delete(JOBSPEC, "greedy", f"big-{number}")
        await until(lambda: told().get("phase") == "Starting", "it starts once there is room")

    play(scene, settings=replace(SETTINGS, namespace_bytes=130_000), nodes=4)
