"""JobSpecs as the hub reads and writes them: a status is parsed once per version, and a write of the hub's own is no news to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tuneyard.api import JobStatus
from tuneyard.api.wire import Reading
from tuneyard_operators.hub.goals import FINALIZER, status_of
from tuneyard_operators.hub.guard import Unreadable
from tuneyard_operators.hub.records import JobRecords, StoredStatus
from tuneyard_operators.hub.write_pace import between_writes_s
from tuneyard_operators.kube import JOBSPEC, Cache, Connection, Key, Missing

Object = dict[str, Any]
_GONE = "gone"


class JobSpecs(Cache):
    """Follows all JobSpecs. `on_change` hears of every version; `on_news` of versions that others have written.

    It writes `stored` of the records, and nothing else of them.
    """

    def __init__(
        self,
        connection: Connection,
        records: JobRecords,
        on_change: Callable[[Key, JobStatus | None], None],
        on_news: Callable[[Key], None],
    ) -> None:
        super().__init__(connection, JOBSPEC, on_change=self._heard, keep=_kept)
        self._api = connection
        self._records = records
        self._on_status = on_change
        self._on_news = on_news
        self._unfinished = 0
        """JobSpecs whose status is not final: they share the pace of writes."""

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
        stored = self._records.recall(key).stored
        version = item["metadata"]["resourceVersion"]
        if stored.reading is None or stored.version != version:
            stored.version, stored.reading = version, status_of(item)
        return stored.reading

    def pause_s(self, key: Key, *, news: bool) -> float:
        """Seconds that a status without weight has to wait: after the last write, or after the first call. `news`: people wait for it."""
        now = asyncio.get_running_loop().time()
        stored = self._records.recall(key).stored
        if stored.written_s is None:
            stored.written_s = now
        placed = any(attempt.ended_at is None and not attempt.created for attempt in self.status(key).attempts)
        return max(0.0, stored.written_s + between_writes_s(self._unfinished, news=news, placed=placed) - now)

    async def write_status(self, key: Key, item: Object, status: JobStatus) -> Object:
        """Store a status. Raises Conflict where the JobSpec is not as `item` any more. Returns the JobSpec as it is now."""
        dumped = status.model_dump(mode="json", by_alias=True)
        change = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}, "status": dumped}
        self._records.recall(key).stored.written_s = asyncio.get_running_loop().time()
        return await self._write(key, item, change, status)

    async def add_finalizer(self, key: Key, item: Object) -> Object:
        """Put the finalizer on. Raises Conflict where the JobSpec is not as `item` any more.

        The record of who set which field goes on the way, where nobody applies server-side, who alone has a use for it: keeping it up
        to date takes an API server a third to a half of the time of each later write.
        """
        change: Object = {"finalizers": [*item["metadata"].get("finalizers", []), FINALIZER]}
        if not any(entry.get("operation") == "Apply" for entry in item["metadata"].get("managedFields", [])):
            change["managedFields"] = [{}]
        return await self._write_metadata(key, item, change)

    async def remove_finalizer(self, key: Key, item: Object) -> None:
        """Take the finalizer off, and so let a JobSpec go that is being deleted. Raises Conflict as `add_finalizer` does."""
        rest = [name for name in item["metadata"].get("finalizers", []) if name != FINALIZER]
        try:
            await self._write_metadata(key, item, {"finalizers": rest})
        except Missing:
            return

    async def _write_metadata(self, key: Key, item: Object, metadata: Object) -> Object:
        change = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"], **metadata}}
        return await self._write(key, item, change, self.status(key))

    async def _write(self, key: Key, item: Object, change: Object, status: JobStatus) -> Object:
        stored = self._records.recall(key).stored
        stored.underway = version = ""
        try:
            answer = await self._api.patch(JOBSPEC, *key, change, subresource="status" if "status" in change else "", brief=True)
            version = answer["metadata"]["resourceVersion"]
            # Nobody has written in between, or the version would not have been the one that was written over.
            now: Object = {**item, **change, "metadata": answer["metadata"]}
            if stored.underway != _GONE:
                stored.version, stored.reading = version, Reading(status)
                # The answer to the write that removes the last finalizer is of an object that is gone already.
                if not now["metadata"].get("deletionTimestamp") or now["metadata"].get("finalizers"):
                    self.put(now)
            return self.items.get(key, now)
        finally:
            heard, stored.underway = stored.underway, None
            if heard not in ("", version):
                self._on_news(key)  # somebody else has written too, or nobody knows what became of the write

    def _heard(self, key: Key, _old: Object | None, new: Object | None) -> None:
        record = self._records.recall(key) if new is not None else self._records.find(key)
        if record is not None:
            self._take_in(key, record.stored, new)
        if record is None or record.stored.underway is None:
            self._on_news(key)
        else:
            record.stored.underway = new["metadata"]["resourceVersion"] if new is not None else _GONE

    def _take_in(self, key: Key, stored: StoredStatus, new: Object | None) -> None:
        status = self.status(key) if new is not None else None
        is_unfinished = status is not None and not status.phase.final
        self._unfinished += is_unfinished - stored.is_unfinished
        stored.is_unfinished = is_unfinished
        if new is None:
            stored.version, stored.reading, stored.written_s = "", None, None
        self._on_status(key, status)


def _kept(item: Object) -> Object:
    """A JobSpec without the fields in the record of who set which, often the larger part of it."""
    if "managedFields" not in item["metadata"]:
        return item
    writers = [{"operation": entry.get("operation")} for entry in item["metadata"]["managedFields"]]
    return {**item, "metadata": {**item["metadata"], "managedFields": writers}}
