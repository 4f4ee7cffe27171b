"""A whole hub in this process, over an API server in memory that is its own member: what it knows can be looked into."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tests.clusters.hubs import jobspec
from tests.servers.memory_api import MemoryApi

from tuneyard_operators.hub.hub import Hub
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import ATTEMPT_REPORT, CLUSTER, JOBSPEC, NODE, POD, SERVICE
from tuneyard_operators.rendering import ATTEMPT, JOB, NAMESPACE_LABEL, TASK, UID, Defaults

T = TypeVar("T")
JOBS = "tuneyard"
SETTINGS = Settings(defaults=Defaults(image="registry/tuneyard:1", output="s3://tuneyard/jobs"))
SKU = {"name": "h100-80gb", "nodes": 10, "gpusPerNode": 8}


class Scene:
    """`hub` over `api`; people and attempts act by the methods."""

    def __init__(self, api: MemoryApi, hub: Hub) -> None:
        self.api = api
        self.hub = hub

    async def submit(self, name: str, **spec: Any) -> None:
        await self.api.create(JOBSPEC, "default", jobspec(name, **spec))

    async def change(self, name: str, **spec: Any) -> None:
        await self.api.patch(JOBSPEC, "default", name, {"spec": spec})

    async def delete(self, name: str) -> None:
        await self.api.delete(JOBSPEC, "default", name)

    def status(self, name: str) -> Mapping[str, Any]:
        return self.api.objects["JobSpec"].get(("default", name), {}).get("status") or {}

    def rayjob(self, name: str) -> str:
        """The name of the RayJob that a job has; empty if it has none."""
        own = (item["metadata"] for item in self.api.objects.get("RayJob", {}).values())
        return next((metadata["name"] for metadata in own if metadata["labels"][JOB] == name), "")

    async def started(self, name: str) -> str:
        """Wait until a job has a RayJob. Returns the attempt's name."""
        return await until(lambda: self.rayjob(name), f"{name} starts")

    async def begin(self, attempt: str) -> None:
        """Make the attempt's head pod, and report as its ranks would when they begin."""
        labels = self.api.objects["RayJob"][JOBS, attempt]["metadata"]["labels"]
        kept = {name: labels[name] for name in (JOB, NAMESPACE_LABEL, UID, TASK, ATTEMPT)}
        head = {"name": f"{attempt}-head", "labels": {**kept, "ray.io/node-type": "head"}}
        spec = {"nodeName": "n0", "containers": [{"image": "registry/tuneyard:1"}]}
        await self.api.create(POD, JOBS, {"metadata": head, "spec": spec, "status": {"phase": "Running"}})
        body = {"metadata": {"name": attempt, "labels": kept}, "status": {"phase": "Running"}}
        await self.api.create(ATTEMPT_REPORT, JOBS, body)

    async def report(self, attempt: str, **state: Any) -> None:
        await self.api.patch(ATTEMPT_REPORT, JOBS, attempt, {"status": state})

    async def removed(self, attempt: str) -> None:
        """Wait until an attempt's RayJob is removed. Remove its pods, and with its Secret its Service, as the cluster would."""
        await until(lambda: (JOBS, attempt) not in self.api.objects["RayJob"], f"the RayJob {attempt} is removed")
        await self.api.delete(POD, JOBS, f"{attempt}-head")
        for (_, name), item in list(self.api.objects.get("Service", {}).items()):
            owner = item["metadata"]["ownerReferences"][0]["name"]
            if owner == attempt and (JOBS, owner) not in self.api.objects["Secret"]:
                await self.api.delete(SERVICE, JOBS, name)

    async def let_go(self, name: str) -> None:
        await until(lambda: ("default", name) not in self.api.objects["JobSpec"], f"the JobSpec {name} is gone")

    def remembers(self, name: str) -> list[str]:
        """Places in the hub's memory, caches included, that mention a job by its name.

        Left out: the native scheduler's picture of its last cycle, which the next question replaces; and the reasons for which other jobs
        have waited, which are a part of their status.
        """
        return [place for place in mentions(self.hub, name) if ".scheduler._known" not in place and "[waits]" not in place]


@asynccontextmanager
async def running_hub(nodes: int = 2, settings: Settings = SETTINGS, api: MemoryApi | None = None) -> AsyncIterator[Scene]:
    """A hub with one member. `api`: of an earlier hub that was killed; default: a new one with nodes of 8 GPUs."""
    made = api or MemoryApi()

    async def again(**_options: Any) -> Any:
        return made

    if api is None:
        await made.create(CLUSTER, None, {"metadata": {"name": "east"}, "spec": {"skus": [SKU]}})
        for number in range(nodes):
            await made.create(NODE, None, node(f"n{number}"))
    hub = Hub(made, again, settings, Metrics())  # type: ignore[arg-type]
    work = asyncio.create_task(hub.run())
    try:
        await until(lambda: hub.jobs.synced.is_set() and hub.members.synced, "the hub has listed everything")
        yield Scene(made, hub)
        if work.done():
            await work
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


def node(name: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name, "labels": {}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": conditions}}


async def until(condition: Callable[[], T], what: str, limit_s: float = 240) -> T:
    """The first true value of `condition()`. Raises AssertionError with `what` after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


def mentions(root: object, word: str) -> list[str]:
    """Paths of attributes, keys and items below an object of this house that are, or contain, a text with `word`."""
    found: list[str] = []
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("", root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            if word in value:
                found.append(path)
            continue
        if value is None or isinstance(value, int | float | bytes | type) or id(value) in seen:
            continue
        seen.add(id(value))
        waiting += [(f"{path}{name}", below) for name, below in _parts(value)]
    return found


def _parts(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [part for key, below in list(value.items()) for part in ((".key", key), (f"[{key}]", below))]
    if isinstance(value, tuple | list | set | frozenset):
        return [("[]", below) for below in value]
    if hasattr(value, "__iter__") and type(value).__name__ in ("deque", "dict_keys", "dict_values"):
        return [("[]", below) for below in value]  # type: ignore[attr-defined]
    if callable(value) and hasattr(value, "__self__"):
        return [("()", value.__self__)]
    if type(value).__module__.partition(".")[0] not in ("tuneyard", "tuneyard_operators", "asyncio", "functools"):
        return []
    slots = [name for own in type(value).__mro__ for name in getattr(own, "__slots__", ())]
    fields = {**getattr(value, "__dict__", {}), **{name: getattr(value, name, None) for name in slots}}
    return [(f".{name}", below) for name, below in fields.items()]
