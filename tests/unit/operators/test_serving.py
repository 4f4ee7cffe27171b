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
