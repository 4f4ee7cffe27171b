"""The client of an ingestion service on a machine of ranks: fetches the shards that its ranks read next."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuneyard.api.errors import said_by
from tuneyard.data.stream import Done, Published, published, wanted_splits

ANSWER_LIMIT_S = 30.0
_LOOK_S = 0.02
_QUIET_S = 1.0
"""Seconds between calls to the master of a machine that wants no shard, so that the master may end workers."""
_AHEAD_WINDOWS = 2
_ASKED_AT_ONCE = 16


class Fetcher:
    """Fetches shards of the streams that ranks publish in `folder`, in a thread of the machine's agent."""

    def __init__(self, folder: Path, master: Any, *, on_problem: Callable[[str], None] = lambda _problem: None) -> None:
        self._folder, self._master, self._on_problem = folder, master, on_problem
        self._stopped = threading.Event()
        self._known: dict[str, Published] = {}
        self._done: dict[str, Done] = {}
        self._told: set[str] = set()
        self._asked_at = 0.0
        self._thread = threading.Thread(target=self._run, name="tuneyard-fetcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(ANSWER_LIMIT_S)

    def _run(self) -> None:
        import ray

        while not self._stopped.wait(_LOOK_S):
            try:
                self._known = published(self._folder, self._known)
                for each in self._known.values():
                    self._serve(each)
            except (ray.exceptions.RayError, OSError) as error:  # the master restarts, or the disk is full, which the rank reports itself
                self._problem(f"{type(error).__name__}: {said_by(error)}")
                self._stopped.wait(1.0)

    def _serve(self, each: Published) -> None:
        import ray

        place, waited_s = each.reads.look()
        done = self._done.setdefault(each.key, Done()).at(place)
        wanted = []
        for number in wanted_splits(each.stream, place, done, ahead=_AHEAD_WINDOWS):
            wanted.append(number)
            if len(wanted) == _ASKED_AT_ONCE:
                break
        if not wanted and time.monotonic() - self._asked_at < _QUIET_S:
            return
        self._asked_at = time.monotonic()
        found = ray.get(self._master.want.remote(_machine(), each.key, wanted, waited_s), timeout=ANSWER_LIMIT_S)
        if found is None:
            ray.get(self._master.open_stream.remote(each.key, each.blob), timeout=ANSWER_LIMIT_S)
            return
        for number, (problem, shard) in found.items():
            self._take(each, done, number, problem, shard)
        if found:
            each.stream.recipe.trim(each.stream.path_of(each.stream.splits[number]))

    def _take(self, each: Published, done: set[int], number: int, problem: str, reference: Any) -> None:
        import ray

        began = time.monotonic()
        try:
            shard: bytes = ray.get(reference, timeout=ANSWER_LIMIT_S)
        except ray.exceptions.RayError:
            self._master.lost.remote(each.key, number)
            return
        self._master.fetched.remote(_machine(), len(shard), time.monotonic() - began)
        done.add(number)  # a rank builds the shard that a worker could not build, and meets the same error
        if problem:
            self._problem(problem)
            return
        path = each.stream.path_of(each.stream.splits[number])
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_bytes(shard)
        beside.rename(path)

    def _problem(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._on_problem(problem)


def _machine() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
