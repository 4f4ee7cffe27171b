"""A start that meets a 409: an object that is there already is the start's own, and anything else is tried again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes_asyncio import client
from tests.builders.attempts import attempt, goal, job, train
from tests.servers.api_servers import Answer, refusal, scripted

from tuneyard.api import Cluster, PlacementStatus
from tuneyard_operators.hub import attempt_objects
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import Conflict, Connection
from tuneyard_operators.rendering import Defaults

QUOTA = refusal(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "jobs": the object has been modified', name="jobs")
THERE = refusal(409, "AlreadyExists", 'networkpolicies "bot-train-1" already exists', name="bot-train-1")
ON = PlacementStatus(cluster="east", sku="cpu", workers=2, gpus=2, pods=2, nodes={"n1": 2})
EAST = Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": [{"name": "cpu", "nodes": 2, "gpusPerNode": 8}]}})


def start(answers: list[Answer]) -> tuple[list[str], list[Any], str]:
    """Methods of the requests, RayJobs that were taken in, and the conflict that the start ended in."""
    taken: list[Any] = []

    async def run(url: str) -> None:
        connection = Connection(client.Configuration(host=url))
        caches = SimpleNamespace(isolates=True, rayjobs=SimpleNamespace(put=taken.append))
        member = SimpleNamespace(cluster=EAST, connection=connection, caches=caches)
        wanted = goal(job(tasks=[train("train", 2)]))
        try:
            settings = Settings(defaults=Defaults(image="registry/tuneyard:1"))
            own = attempt(1, "train", placement=ON)
            await attempt_objects.start(wanted, own, "s3://models/bot", cast(Any, member), connection, settings)
        finally:
            await connection.close()

    with scripted(answers) as server:
        refused = ""
        try:
            asyncio.run(run(server.url))
        except Conflict as error:
            refused = error.message
    return [asked.method for asked in server.asked], taken, refused


def test_what_is_there_already_is_taken() -> None:
    there = {"metadata": {"name": "bot-train-1"}}
    assert start([THERE, THERE, Answer(200, there)]) == (["POST", "POST", "GET"], [there], "")


@pytest.mark.parametrize("before", [[], [Answer(201, {"metadata": {}})]], ids=["its policy", "its RayJob"])
def test_a_quota_that_has_changed_meanwhile_leaves_nothing_out(before: list[Answer]) -> None:
    methods, taken, refused = start([*before, QUOTA])
    assert "resourcequotas" in refused
    assert (methods, taken) == (["POST"] * (len(before) + 1), [])
