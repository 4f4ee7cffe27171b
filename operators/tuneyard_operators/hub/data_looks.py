"""Looks for the data that runs of Schedules wait for, in the background: a storage that hangs delays no Schedule.

The hub reads S3 with the keys that the pods of the run will have (`StorageKeys.open_data`), and asks HDFS as their user (`NameNodes`). It
never reads with its own identity. It answers one question alone, whether a path exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from tuneyard.api import TuneyardError
from tuneyard.api.schedule_status import WaitingRun
from tuneyard.cluster.hub_job import HubJob, hub_job
from tuneyard.schedules import Look
from tuneyard.storage import scheme_of
from tuneyard_operators.hub.name_nodes import SCHEMES, NameNodes
from tuneyard_operators.kube import ApiError, Key
from tuneyard_operators.logs.problems import Problem
from tuneyard_operators.logs.storage import LogStorage

log = logging.getLogger(__name__)
LOOK_EVERY_S = 30.0
_LONGEST_S = 30.0
_AT_ONCE_OF_A_NAMESPACE = 4


class Opens(Protocol):
    async def open_data(self, job: HubJob) -> LogStorage: ...


class DataLooks:
    """The last look for each run that waits. `every_s`: seconds between two looks."""

    def __init__(self, storage: Opens, name_nodes: NameNodes, every_s: float = LOOK_EVERY_S) -> None:
        self._storage = storage
        self._name_nodes = name_nodes
        self._every_s = every_s
        self._found: dict[Key, dict[str, tuple[float, Look]]] = {}
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        self._limits: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE_OF_A_NAMESPACE))

    def of(self, key: Key) -> Mapping[str, Look]:
        """The last look for each run of a Schedule that waits."""
        return {name: look for name, (_, look) in self._found.get(key, {}).items()}

    def want(self, key: Key, item: Mapping[str, Any], waiting: Iterable[WaitingRun]) -> None:
        """Look for the data of these runs of a Schedule, unless it was done less than `every_s` ago. All other runs are forgotten."""
        wanted = {each.name: each for each in waiting}
        known = {name: found for name, found in self._found.get(key, {}).items() if name in wanted}
        if known:
            self._found[key] = known
        else:
            self._found.pop(key, None)
        now = asyncio.get_running_loop().time()
        for name, each in wanted.items():
            if (key, name) not in self._tasks and now - known.get(name, (-self._every_s, None))[0] >= self._every_s:
                self._tasks[key, name] = asyncio.create_task(self._look(key, item, each))

    def close(self) -> None:
        """End what is under way: another hub leads, and begins anew."""
        for task in self._tasks.values():
            task.cancel()

    async def _look(self, key: Key, item: Mapping[str, Any], waiting: WaitingRun) -> None:
        before = self._found.get(key, {}).get(waiting.name)
        try:
            async with self._limits[key[0]], asyncio.timeout(_LONGEST_S):
                began_s = asyncio.get_running_loop().time()
                found = await self._answer(item, waiting.path)
                look = replace(found, at_s=began_s).after(before[1] if before is not None else None)
        except TimeoutError:
            look = Look(False, "its storage does not answer")
        except Problem as problem:
            look = Look(False, str(problem))
        except (ApiError, TuneyardError) as error:
            look = Look(False, str(error))
        except Exception as error:
            log.exception("the data of %s/%s cannot be looked for", *key)
            look = Look(False, f"the hub cannot look for it: {type(error).__name__}")
        finally:
            self._tasks.pop((key, waiting.name), None)
        self._found.setdefault(key, {})[waiting.name] = asyncio.get_running_loop().time(), look

    async def _answer(self, item: Mapping[str, Any], path: str) -> Look:
        template = item["spec"]["template"]["spec"]
        if scheme_of(path) in SCHEMES:
            return Look(await self._name_nodes.is_there(path, template.get("env") or []))
        folder, _, name = path.rstrip("/").rpartition("/")
        spec = {**template, "storage": {"output": folder}, "tasks": []}
        job = hub_job({"metadata": {**item["metadata"]}, "spec": spec})
        storage = await self._storage.open_data(job)
        return Look(await storage.is_there(name))
