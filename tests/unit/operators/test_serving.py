"""What a hub does with the tasks of a job that serves, over an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.clusters.hub_in_memory import JOBS, Scene, running_hub, until
from tests.clusters.hubs import jobspec

from tuneyard_operators.kube import SECRET

KEY = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}


def play(scene: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with running_hub(**options) as stage:
            await stage.api.create(SECRET, "default", {"metadata": {"name": "bot"}, "data": {"key": "a2V5"}})
            await scene(stage)

    asyncio.run(run())


def test_a_server_that_has_served_is_started_again_where_a_first_start_ends_its_job() -> None:
    serve = {"name": "serve", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}, "resources": {"sku": ["h100-80gb"]}}
    broken = {"phase": "Failed", "failure": {"kind": "UserError", "message": "the engine did not start"}}

    async def fail(stage: Scene, name: str) -> None:
        attempt = await stage.started(name)
        await stage.begin(attempt)
        await stage.report(attempt, **broken)
        await stage.removed(attempt)

    async def scene(stage: Scene) -> None:
        await stage.submit("new", env=[KEY], tasks=[serve])
        await fail(stage, "new")
        await until(lambda: stage.status("new")["phase"] == "Failed", "its spec cannot work")

        await stage.submit("old", env=[KEY], tasks=[serve])
        attempt = await stage.started("old")
        await stage.begin(attempt)
        await stage.report(attempt, phase="Preempted", idle=True, message="no request for 900 s")
        await stage.removed(attempt)
        await until(lambda: stage.status("old")["attempts"][-1].get("asleepAt"), "it sleeps")
        await stage.change("old", suspend=False)
        await fail(stage, "old")
        await stage.started("old")

    play(scene)


def test_the_training_of_a_job_that_serves_makes_room_and_its_server_does_not() -> None:
    (train,) = jobspec("bot")["spec"]["tasks"]
    serve = {"name": "serve", "serve": {"models": [{"from": "train"}]}, "resources": {"sku": ["h100-80gb"]}}

    async def scene(stage: Scene) -> None:
        await stage.submit("bot", env=[KEY], tasks=[train, serve])
        training = await stage.started("bot")
        await stage.begin(training)
        await stage.report(training, phase="Running", checkpointStep=5)
        await until(lambda: stage.status("bot").get("phase") == "Running", "it trains")
        await stage.submit("first", priority="high")
        await until(lambda: stage.status("bot")["attempts"][0]["stopping"] == "Preempted", "the training is asked to go")
        await stage.report(training, phase="Preempted")
        await stage.removed(training)
        await stage.begin(first := await stage.started("first"))
        await stage.report(first, phase="Succeeded")
        await stage.removed(first)

        await until(lambda: stage.rayjob("bot"), "it trains again")
        await stage.begin(again := stage.rayjob("bot"))
        await stage.report(again, phase="Succeeded")
        await stage.removed(again)
        serving = await stage.started("bot")
        await stage.begin(serving)
        await stage.submit("second", priority="high")
        await until(lambda: "7 of 8 GPUs free" in stage.status("second").get("message", ""), "it waits for a server")
        assert not stage.status("bot")["attempts"][-1]["stopping"]
        assert (JOBS, serving) in stage.api.objects["RayJob"]

    play(scene, nodes=1)
