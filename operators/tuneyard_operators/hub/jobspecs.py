"""Reads and writes JobSpecs. A status is parsed once per version, and the hub's own writes do not queue the job again."""

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
from tuneyard_operators.kube import JOBSPEC, Cache, Connection, Key, Missing, Shares

Object = dict[str, Any]
_GONE = "gone"


class JobSpecs(Cache):
    """Follows all JobSpecs. `on_change` is called for every version, `on_news` only for versions that others have written.

    Of the job records, it writes `stored` alone.
    """

    def __init__(
        self,
        connection: Connection,
        records: JobRecords,
        on_change: Callable[[Key, JobStatus | None], None],
        on_news: Callable[[Key], None],
        shares: Shares | None = None,
    ) -> None:
        super().__init__(connection, JOBSPEC, on_change=self._heard, keep=_kept, shares=shares)
        self._api = connection
        self._records = records
        self._on_status = on_change
        self._on_news = on_news
        self._unfinished = 0
        """Number of JobSpecs whose status is not final: they share the rate of writes."""

    def status(self, key: Key) -> JobStatus:
        """The readable part of the stored status of an existing JobSpec. Shared: callers copy it before they change it."""
        return self._reading(key).value

    def check_readable(self, key: Key) -> None:
        """Raises Unreadable if decisions need a part of the status that cannot be read: an attempt in it may be running."""
        lost = self._reading(key).lost
        if lost:
            advice = "run the version of the hub that wrote it, or delete the job"
            raise Unreadable(f"the stored status cannot be read ({lost}), so the hub starts and stops nothing: {advice}")

    def is_readable(self, key: Key) -> bool:
        """Whether `check_readable` passes."""
        return not self._reading(key).lost

    def _reading(self, key: Key) -> Reading[JobStatus]:
        item = self.items[key]
        stored = self._records.recall(key).stored
        version = item["metadata"]["resourceVersion"]
        if stored.reading is None or stored.version != version:
            stored.version, stored.reading = version, status_of(item)
        return stored.reading

    def pause_s(self, key: Key, *, news: bool) -> float:
        """Seconds until a status that nothing depends on may be written, counted from the last write, or from the first call.

        `news`: the status has news for people (`write_pace.is_news`).
        """
        now = asyncio.get_running_loop().time()
        stored = self._records.recall(key).stored
        if stored.written_s is None:
            stored.written_s = now
        placed = any(attempt.ended_at is None and not attempt.created for attempt in self.status(key).attempts)
        return max(0.0, stored.written_s + between_writes_s(self._unfinished, news=news, placed=placed) - now)

    async def write_status(self, key: Key, item: Object, status: JobStatus) -> Object:
        """Store a status. Returns the JobSpec as it is now. Raises Conflict if its version is no longer that of `item`."""
        dumped = status.model_dump(mode="json", by_alias=True)
        change = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}, "status": dumped}
        self._records.recall(key).stored.written_s = asyncio.get_running_loop().time()
        return await self._write(key, item, change, status)

    async def add_finalizer(self, key: Key, item: Object) -> Object:
        """Add the finalizer. Raises Conflict if the JobSpec's version is no longer that of `item`.

        The same write removes `managedFields`, unless somebody applies server-side, which needs them: without them, each later write takes
        the API server a third to a half less time.
        """
        change: Object = {"finalizers": [*item["metadata"].get("finalizers", []), FINALIZER]}
        if not any(entry.get("operation") == "Apply" for entry in item["metadata"].get("managedFields", [])):
            change["managedFields"] = [{}]
        return await self._write_metadata(key, item, change)

    async def remove_finalizer(self, key: Key, item: Object) -> None:
        """Remove the finalizer, so that the API server deletes the JobSpec. Raises Conflict as `add_finalizer` does."""
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
            # The write succeeded, so `item` was the newest version: the patch applied to it is the present object.
            now: Object = {**item, **change, "metadata": answer["metadata"]}
            if stored.underway != _GONE:
                stored.version, stored.reading = version, Reading(status)
                # Once the last finalizer is removed, the object in the answer does not exist any more.
                if not now["metadata"].get("deletionTimestamp") or now["metadata"].get("finalizers"):
                    self.put(now)
            return self.items.get(key, now)
        finally:
            heard, stored.underway = stored.underway, None
            if heard not in ("", version):
                self._on_news(key)  # somebody else has written too, or the result of the write is unknown

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
    """A JobSpec without the field lists in `managedFields`, which are often its larger part."""
    if "managedFields" not in item["metadata"]:
        return item
    writers = [{"operation": entry.get("operation")} for entry in item["metadata"]["managedFields"]]
    return {**item, "metadata": {**item["metadata"], "managedFields": writers}}
