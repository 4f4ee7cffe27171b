"""JobSpecs as the hub reads and writes them: a status is parsed once per version, and a write of the hub's own is no news to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tuneyard.api import JobStatus
from tuneyard.api.wire import Reading
from tuneyard_operators.hub.goals import FINALIZER, status_of
from tuneyard_operators.hub.guard import Unreadable
from tuneyard_operators.kube import JOBSPEC, Cache, Connection, Key, Missing

Object = dict[str, Any]
_BETWEEN_WRITES_S = 2.0
"""A status that nothing hangs on is written no more often: what changes in between goes with the next one."""
_AFTER_A_PLACEMENT_S = 5.0
"""The same after a placement: its RayJob is seen, its pods come and, where all is there already, its ranks begin."""
_WRITES_PER_S = 50.0
"""Of progress and of reasons for waiting, over all jobs: an API server takes some 6 ms of a core for one."""
_GONE = "gone"


class JobSpecs(Cache):
    """Follows all JobSpecs. `on_change` hears of every version; `on_news` of those alone that others have written.

    Nothing here is truth: parsed statuses are of a version that is in the cache, and the times of writes only pace the next ones.
    """

    def __init__(self, connection: Connection, on_change: Callable[[Key, JobStatus | None], None], on_news: Callable[[Key], None]) -> None:
        super().__init__(connection, JOBSPEC, on_change=self._heard, keep=_kept)
        self._hub = connection
        self._on_status = on_change
        self._on_news = on_news
        self._parsed: dict[Key, tuple[str, Reading[JobStatus]]] = {}
        self._written_s: dict[Key, float] = {}
        """When a status was written last, or wanted to be for the first time."""
        self._unfinished: set[Key] = set()
        self._underway: dict[Key, str] = {}
        """Keys with a write on its way, and the newest version that the watch has told of meanwhile."""

    def status(self, key: Key) -> JobStatus:
        """The stored status of a JobSpec that is there, as far as it can be read. Shared: to be copied before it is changed."""
        return self._reading(key).value

    def check_readable(self, key: Key) -> None:
        """Raises Unreadable where decisions about the job hang on what cannot be read: an attempt that is lost sight of may be running."""
        lost = self._reading(key).lost
        if lost:
            advice = "run the version of the hub that wrote it, or delete the job"
            raise Unreadable(f"the stored status cannot be read ({lost}), so that nothing is started or stopped: {advice}")

    def is_readable(self, key: Key) -> bool:
        """Whether `check_readable` has nothing to say."""
        return not self._reading(key).lost

    def _reading(self, key: Key) -> Reading[JobStatus]:
        item = self.items[key]
        version = item["metadata"]["resourceVersion"]
        known = self._parsed.get(key)
        if known is None or known[0] != version:
            self._parsed[key] = known = (version, status_of(item))
        return known[1]

    def pause_s(self, key: Key, *, news: bool) -> float:
        """For how long a status that can wait should wait: after the last write, or after the first question.

        `news`: people wait to hear it.
        """
        now = asyncio.get_running_loop().time()
        placed = any(attempt.ended_at is None and not attempt.created for attempt in self.status(key).attempts)
        between_s = between_writes_s(len(self._unfinished), news=news, placed=placed)
        return max(0.0, self._written_s.setdefault(key, now) + between_s - now)

    async def write_status(self, key: Key, item: Object, status: JobStatus) -> Object:
        """Store a status. Raises Conflict where the JobSpec is not as `item` any more. Returns the JobSpec as it is now."""
        dumped = status.model_dump(mode="json", by_alias=True)
        change = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}, "status": dumped}
        self._written_s[key] = asyncio.get_running_loop().time()
        return await self._write(key, item, change, status)

    async def hold(self, key: Key, item: Object) -> Object:
        """Put the finalizer on. Raises Conflict where the JobSpec is not as `item` any more.

        The record of who set which field goes on the way, where nobody applies server-side, who alone has a use for it: keeping it up
        to date takes an API server a third to a half of the time of each later write.
        """
        change: Object = {"finalizers": [*item["metadata"].get("finalizers", []), FINALIZER]}
        if not any(entry.get("operation") == "Apply" for entry in item["metadata"].get("managedFields", [])):
            change["managedFields"] = [{}]
        return await self._write_metadata(key, item, change)

    async def release(self, key: Key, item: Object) -> None:
        """Take the finalizer off, and so let a JobSpec go that is being deleted. Raises Conflict as `hold` does."""
        rest = [name for name in item["metadata"].get("finalizers", []) if name != FINALIZER]
        try:
            await self._write_metadata(key, item, {"finalizers": rest})
        except Missing:
            return

    async def _write_metadata(self, key: Key, item: Object, metadata: Object) -> Object:
        change = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"], **metadata}}
        return await self._write(key, item, change, self.status(key))

    async def _write(self, key: Key, item: Object, change: Object, status: JobStatus) -> Object:
        self._underway[key] = ""
        version = ""
        try:
            answer = await self._hub.patch(JOBSPEC, *key, change, subresource="status" if "status" in change else "", brief=True)
            version = answer["metadata"]["resourceVersion"]
            # Nobody has written in between, or the version would not have been the one that was written over.
            now: Object = {**item, **change, "metadata": answer["metadata"]}
            self._parsed[key] = (version, Reading(status))
            # The answer to the write that removes the last finalizer is of an object that is gone already.
            going = now["metadata"].get("deletionTimestamp") and not now["metadata"].get("finalizers")
            if not going and self._underway[key] != _GONE:
                self.put(now)
            return self.items.get(key, now)
        finally:
            if self._underway.pop(key) not in ("", version):
                self._on_news(key)  # somebody else has written too, or nobody knows what became of the write

    def _heard(self, key: Key, _old: Object | None, new: Object | None) -> None:
        if new is None:
            for known in (self._parsed, self._written_s):
                known.pop(key, None)
            self._unfinished.discard(key)
            self._on_status(key, None)
        else:
            status = self.status(key)
            (self._unfinished.discard if status.phase.final else self._unfinished.add)(key)
            self._on_status(key, status)
        if key not in self._underway:
            self._on_news(key)
        elif new is None:
            self._underway[key] = _GONE
        else:
            self._underway[key] = new["metadata"]["resourceVersion"]


def between_writes_s(unfinished: int, *, news: bool, placed: bool) -> float:
    """Least seconds between two writes of a status on which nothing hangs, where there are so many `unfinished` jobs.

    `placed`: an attempt is to start, and nothing has been seen of it.
    """
    if news:
        return _BETWEEN_WRITES_S
    return max(_AFTER_A_PLACEMENT_S if placed else _BETWEEN_WRITES_S, unfinished / _WRITES_PER_S)


def _kept(item: Object) -> Object:
    """A JobSpec without the fields in the record of who set which, often the larger part of it."""
    if "managedFields" not in item["metadata"]:
        return item
    writers = [{"operation": entry.get("operation")} for entry in item["metadata"]["managedFields"]]
    return {**item, "metadata": {**item["metadata"], "managedFields": writers}}
