"""How a whole hub puts a server to sleep and wakes it: killed at any write, refused by a member, asked by many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.clusters.hub_in_memory import JOBS, Scene, running_hub, until
from tests.servers.memory_api import MemoryApi

from tuneyard_operators.kube import JOBSPEC, POD, SECRET, SERVICE, TEAM, Forbidden, Kind, Missing, Unreachable
from tuneyard_operators.rendering import DOOR

SERVE = {"name": "serve", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
KEY = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}
WHY = "no request for 900 s"


async def collect_garbage(api: MemoryApi) -> None:
    """Removes what is owned by a Secret that is gone, as Kubernetes does."""
    while True:
        await asyncio.sleep(0.02)
        uids = {item["metadata"]["uid"] for item in api.objects.get("Secret", {}).values()}
        for kind in (POD, SERVICE):
            for _, name in [key for key, item in api.objects.get(kind.name, {}).items() if _is_left(item, uids)]:
                with suppress(Missing):
                    await api.delete(kind, JOBS, name)


def _is_left(item: dict[str, Any], uids: set[str]) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return bool(owners) and owners[0]["uid"] not in uids


@asynccontextmanager
async def stage(api: MemoryApi | None = None) -> AsyncIterator[Scene]:
    async with running_hub(api=api) as scene:
        if api is None:
            await scene.api.create(SECRET, "default", {"metadata": {"name": "bot"}, "data": {"key": "aw=="}})
        collector = asyncio.create_task(collect_garbage(scene.api))
        try:
            yield scene
        finally:
            collector.cancel()


async def submit(scene: Scene) -> str:
    """Submit the job. Returns the name of its first attempt, which runs and answers."""
    body = {"metadata": {"name": "bot", "namespace": "default"}, "spec": {"env": [KEY], "tasks": [SERVE]}}
    await scene.api.create(JOBSPEC, "default", body)
    return await answers(scene)


async def answers(scene: Scene) -> str:
    attempt = await scene.started("bot")
    await scene.begin(attempt)
    await scene.report(attempt, progress={"summary": "serving at http://here"})
    await until(lambda: scene.status("bot").get("phase") == "Running", "it runs")
    return attempt


async def falls_asleep(scene: Scene, attempt: str) -> None:
    await scene.report(attempt, phase="Preempted", idle=True, message=WHY)
    await scene.removed(attempt)


async def door_opens(scene: Scene, attempt: str) -> None:
    name = f"{attempt}-door"
    await until(lambda: (JOBS, name) in scene.api.objects["Pod"], "a pod hears requests")
    await scene.api.patch(POD, JOBS, name, {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    await until(lambda: [own["door"] for own in scene.status("bot")["attempts"]][-1] == "open", "its door is open")


def address(scene: Scene) -> dict[str, str]:
    (service,) = scene.api.objects["Service"].values()
    return dict(service["spec"]["selector"])


def standing(scene: Scene, attempt: str) -> str:
    return str(scene.api.objects["AttemptReport"][JOBS, attempt].get("spec", {}).get("standing", ""))


def is_empty(scene: Scene) -> bool:
    own = [item for kind in ("Service", "Pod", "RayJob", "AttemptReport") for item in scene.api.objects.get(kind, {}).values()]
    return not own and not [key for key in scene.api.objects["Secret"] if key[0] == JOBS]


def test_a_request_wakes_a_server_and_its_address_follows() -> None:
    async def run() -> None:
        async with stage() as scene:
            first = await submit(scene)
            await falls_asleep(scene, first)
            await door_opens(scene, first)
            assert scene.status("bot")["attempts"][0]["cleaned"], "its GPUs are free"
            assert DOOR in address(scene)
            for second in range(50):
                await scene.report(first, askedAt=f"2026-11-21T12:00:{second:02}Z")
            second_one = await scene.started("bot")
            assert DOOR in address(scene), "requests are heard while the engine loads"
            await until(lambda: standing(scene, first), "whoever asks is told")
            assert await answers(scene) == second_one
            await until(lambda: (JOBS, f"{first}-door") not in scene.api.objects["Pod"], "its door is gone")
            assert (DOOR in address(scene), address(scene)["tuneyard.dev/attempt"]) == (False, "2")
            assert len(scene.status("bot")["attempts"]) == 2
            assert (JOBS, first) not in scene.api.objects["Secret"]
            await scene.delete("bot")
            await scene.report(second_one, phase="Cancelled")
            await scene.removed(second_one)
            await scene.let_go("bot")
            await until(lambda: is_empty(scene), "nothing is left")
            await until(lambda: not scene.remembers("bot-serve"), "it is forgotten")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("verb", "kind"), [("delete", "RayJob"), ("patch", "Service"), ("create", "Pod"), ("patch", "JobSpec"), ("patch", "AttemptReport")]
)
@pytest.mark.parametrize("killed", [False, True])
def test_a_write_that_fails_is_made_again_also_by_the_next_hub(verb: str, kind: str, killed: bool) -> None:
    async def run() -> None:
        broken: list[str] = []

        def refuse(asked: str, of: Kind, name: str) -> None:
            if (asked, of.name) == (verb, kind) and (killed or not broken) and not name.endswith("-head"):
                broken.append(name)
                raise Unreachable(0, "timed out")

        async with stage() as scene:
            first = await submit(scene)
            api = scene.api
            await scene.report(first, phase="Preempted", idle=True, message=WHY)
            api.refuse = (lambda *_: None) if kind == "AttemptReport" else refuse
            await until(lambda: broken or kind == "AttemptReport", "a write fails")
            if not killed:
                await scene.removed(first)
                await door_opens(scene, first)
        api.refuse = lambda *_: None
        async with stage(api) as scene:
            if killed:
                await scene.removed(first)
                await door_opens(scene, first)
            assert DOOR in address(scene)
            await scene.report(first, askedAt="2026-11-21T12:00:00Z")
            broken.clear()
            api.refuse = (lambda *_: None) if killed else refuse
            await answers(scene)
            await until(lambda: (JOBS, f"{first}-door") not in api.objects["Pod"], "its door is gone")
            assert address(scene)["tuneyard.dev/attempt"] == "2"

    asyncio.run(run())


@pytest.mark.parametrize(("verb", "kind"), [("create", "Pod"), ("patch", "Service")])
def test_a_member_that_grants_no_door_is_named_and_the_server_resumes_by_hand(verb: str, kind: str) -> None:
    async def run() -> None:
        def refuse(asked: str, of: Kind, name: str) -> None:
            if (asked, of.name) == (verb, kind) and (kind == "Service" or name.endswith("-door")):
                raise Forbidden(403, "its chart is older")

        async with stage() as scene:
            first = await submit(scene)
            scene.api.refuse = refuse
            await falls_asleep(scene, first)
            await until(lambda: is_empty(scene), "nothing is left on the member")
            said = scene.status("bot")["message"]
            assert said.startswith(f"asleep: serve: {WHY}; tuneyard resume bot starts it again (requests do not: ")
            assert "its chart is older" in said
            assert "upgrade the chart tuneyard-member of east" in said
            await scene.change("bot", suspend=False)
            await scene.started("bot")

    asyncio.run(run())


@pytest.mark.parametrize("change", [{"suspend": True}, {"cancelled": True}])
def test_a_request_does_not_undo_what_a_person_has_asked_for(change: dict[str, bool]) -> None:
    async def run() -> None:
        async with stage() as scene:
            first = await submit(scene)
            await falls_asleep(scene, first)
            await door_opens(scene, first)
        await scene.change("bot", **change)
        await scene.report(first, askedAt="2026-11-21T12:00:00Z")
        async with stage(scene.api) as again:
            await until(lambda: is_empty(again), "nothing is left on the member")
            assert len(again.status("bot")["attempts"]) == 1
            assert again.status("bot")["message"].startswith("suspended" if "suspend" in change else "cancelled")

    asyncio.run(run())


def test_a_woken_server_waits_for_quota_and_names_no_other_job_to_its_clients() -> None:
    async def run() -> None:
        async with stage() as scene:
            first = await submit(scene)
            await falls_asleep(scene, first)
            await door_opens(scene, first)
            api = scene.api
        await api.create(
            TEAM, None, {"metadata": {"name": "default"}, "spec": {"quota": {"h100-80gb": 0}, "borrowingLimit": {"h100-80gb": 0}}}
        )
        async with stage(api) as scene:
            await scene.report(first, askedAt="2026-11-21T12:00:00Z")
            await until(lambda: "quota" in scene.status("bot")["message"], "its owner is told why")
            told = await until(
                lambda: scene.api.objects["AttemptReport"][JOBS, first].get("spec", {}).get("standing"), "its clients are told"
            )
            assert told.startswith("it waits for machines")
            assert DOOR in address(scene)
            await scene.api.patch(TEAM, None, "default", {"spec": {"borrowingLimit": {"h100-80gb": 8}}})
            await answers(scene)

    asyncio.run(run())


def test_a_door_whose_pod_was_evicted_is_made_again() -> None:
    async def run() -> None:
        async with stage() as scene:
            first = await submit(scene)
            await falls_asleep(scene, first)
            await door_opens(scene, first)
            before = scene.api.objects["Pod"][JOBS, f"{first}-door"]["metadata"]["uid"]
            await scene.api.patch(POD, JOBS, f"{first}-door", {"status": {"phase": "Failed"}})
            pods = scene.api.objects["Pod"]
            await until(lambda: (found := pods.get((JOBS, f"{first}-door"))) and found["metadata"]["uid"] != before, "another pod")
            await door_opens(scene, first)

    asyncio.run(run())


def test_a_server_that_starts_keeps_its_address_where_its_door_is_lost_meanwhile() -> None:
    async def run() -> None:
        def refuse(asked: str, of: Kind, name: str) -> None:
            if (asked, of.name) == ("create", "Pod") and name.endswith("-door"):
                raise Forbidden(403, "no such image here")

        async with stage() as scene:
            first = await submit(scene)
            await falls_asleep(scene, first)
            await door_opens(scene, first)
            await scene.report(first, askedAt="2026-11-21T12:00:00Z")
            await scene.started("bot")
            await until(lambda: scene.status("bot")["attempts"][1].get("created"), "it starts")
            scene.api.refuse = refuse
            await scene.api.patch(POD, JOBS, f"{first}-door", {"status": {"phase": "Failed"}})
            await until(lambda: (JOBS, first) not in scene.api.objects["Secret"], "the door and all of its attempt are gone")
            await answers(scene)
            assert address(scene)["tuneyard.dev/attempt"] == "2"

    asyncio.run(run())


def test_a_server_may_sleep_again_and_again() -> None:
    async def run() -> None:
        async with stage() as scene:
            attempt = await submit(scene)
            first = {item["metadata"]["uid"] for item in scene.api.objects["Service"].values()}
            for number in range(1, 4):
                await falls_asleep(scene, attempt)
                await door_opens(scene, attempt)
                await until(lambda: len([key for key in scene.api.objects["Pod"] if key[1].endswith("-door")]) == 1, "one door")
                assert address(scene)["tuneyard.dev/attempt"] == str(number)
                await scene.report(attempt, askedAt="2026-11-21T12:00:00Z")
                attempt = await answers(scene)
            assert {item["metadata"]["uid"] for item in scene.api.objects["Service"].values()} == first, "its address in the cluster stays"

    asyncio.run(run())
