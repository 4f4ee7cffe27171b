"""The Secrets that jobs name: a cap for each job, few looks however many jobs wait, and no key that stands for another's."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

from tests.clusters.hub_in_memory import JOBS, Scene, running_hub, until
from tests.servers.memory_api import MemoryApi

from tuneyard_operators.hub.job_secrets import JobSecrets
from tuneyard_operators.kube import SECRET, Kind
from tuneyard_operators.rendering import SecretKey


class Counting(MemoryApi):
    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        self.reads[f"{kind.name} {name}"] += 1
        return await super().get(kind, namespace, name)


def of(name: str, key: str, **options: Any) -> dict[str, Any]:
    return {"name": f"V_{key.upper().replace('.', '_')}", "valueFrom": {"secretKeyRef": {"name": name, "key": key, **options}}}


def data(**values: str) -> dict[str, str]:
    return {key.replace("__", "."): base64.b64encode(value.encode()).decode() for key, value in values.items()}


def test_a_job_that_names_too_many_secrets_is_refused_with_the_number() -> None:
    async def scene() -> None:
        async with running_hub() as stage:
            await stage.submit("greedy", env=[of(f"s-{number}", f"k{number}") for number in range(17)])
            await until(lambda: stage.status("greedy").get("phase") == "Failed", "it is refused")
            assert "names 17 Secrets, and a job may name at most 16" in stage.status("greedy")["message"]
            await stage.api.create(
                SECRET, "default", {"metadata": {"name": "s"}, "data": data(**{f"k{number}": "v" for number in range(17)})}
            )
            await stage.submit("many-keys", env=[of("s", f"k{number}") for number in range(17)])
            await stage.started("many-keys")

    asyncio.run(scene())


def test_a_key_of_one_secret_does_not_stand_for_a_key_of_another() -> None:
    async def scene(stage: Scene) -> None:
        await stage.api.create(SECRET, "default", {"metadata": {"name": "a"}, "data": data(b__c="of a")})
        await stage.api.create(SECRET, "default", {"metadata": {"name": "a.b"}, "data": data(c="of a.b")})
        first, second = {**of("a", "b.c"), "name": "FIRST"}, {**of("a.b", "c"), "name": "SECOND"}
        await stage.submit("both", env=[first, second])
        attempt = await stage.started("both")
        copied = stage.api.objects["Secret"][JOBS, attempt]["data"]
        (head,) = stage.api.objects["RayJob"][JOBS, attempt]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
        values = {
            each["name"]: base64.b64decode(copied[each["valueFrom"]["secretKeyRef"]["key"]]).decode()
            for each in head["env"]
            if each["name"] in ("FIRST", "SECOND")
        }
        assert values == {"FIRST": "of a", "SECOND": "of a.b"}

    async def run() -> None:
        async with running_hub() as stage:
            await scene(stage)

    asyncio.run(run())


def test_keys_of_any_length_fit_into_the_copy() -> None:
    long = SecretKey("a" * 253, "k" * 253)
    assert len(long.copied_key) <= 253
    assert long.copied_key != SecretKey("a" * 253, "k" * 252).copied_key


def test_many_jobs_that_wait_for_secrets_cost_a_look_each_and_then_few() -> None:
    async def scene() -> None:
        api, now = Counting(), 0.0
        secrets = JobSecrets(api, clock=lambda: now)  # type: ignore[arg-type]
        shared = [SecretKey("shared", "k")]
        for _ in range(100):
            assert "the Secret shared" in await secrets.lacking("greedy", shared)
        assert api.reads == {"Secret shared": 1}
        assert secrets.look_again_s("greedy") == 10
        for number in range(1_000):
            await secrets.lacking("greedy", [SecretKey(f"s-{number}", "k")])
        assert (secrets.look_again_s("greedy"), secrets.look_again_s("other")) == (100.1, 10)
        await api.create(SECRET, "greedy", {"metadata": {"name": "shared"}, "data": data(k="v")})
        now = 6.0
        assert not await secrets.lacking("greedy", shared)
        assert await secrets.values("greedy", shared) == {shared[0]: b"v"}

    asyncio.run(scene())
