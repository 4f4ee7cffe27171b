"""The tier of shared shards, as one process uses it: bounded waits, stores in the background, counts.

- A fetch ends after about the time that building takes. All fetches in vain, and what others took longer than building, may take
  `_GRACE_S` and a tenth of the seconds of building. Beyond that the tier is passed over until more was built. A tier that is slow or away
  therefore costs a job next to nothing.
- Shards are stored by threads, from their files. What they cannot keep up with is left out, and after a failure they pause.
- Objects are created if absent: of two jobs that build a shard at once, one stores it, and both have the same bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TakesTooLong
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from queue import Full, Queue

from tuneyard.api import StorageError, TuneyardError
from tuneyard.data.shard_files import make_room, unfinished_name
from tuneyard.data.shared.eviction import EVERY_S, evict, note_path
from tuneyard.data.shared.objects import Stored, Unusable, object_path, unwrapped, wrapped
from tuneyard.data.shared.place import Counts, SharedShards, Wanted
from tuneyard.storage import AlreadyExists, NotFound, Store, join, open_store

LONGEST_FETCH_S = 8.0
_SHORTEST_FETCH_S = 2.0
"""Limits of a fetch; between them, the mean seconds of building a shard. The first fetches have the shortest."""
_GRACE_S = 5.0
_LOST_SHARE = 0.1
_READERS, _WRITERS = 16, 4
_WAITING = 256
"""Shards that wait to be stored, at most."""
_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0
"""No shard is stored for this long after a failure; twice as long after the next."""
_NOTED_AFTER_S = 3600.0
"""The use of a shard is noted if it was stored longer ago than this."""
LAST_STORES_S, _LAST_SHARE, _MOST_LAST_STORES_S = 5.0, 0.1, 20.0
"""At the end of a job, stores under way have so many seconds, and a tenth of those of building, but at most 20."""


class Tier:
    """Shared shards for the threads of this process. The methods of `ShardTier` never raise for a tier that cannot be used."""

    def __init__(
        self,
        place: SharedShards,
        *,
        open_place: Callable[[str], Store] = open_store,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`clock`, `now`: seconds, since any moment and since 1970. No request is made before the first fetch or store."""
        self._place, self._clock, self._now = place, clock, now
        self._open = cache(lambda: open_place(place.uri))
        self._lock = threading.Lock()
        self._counts = Counts()
        self._marks: dict[str, str] = {}
        self._shards, self._seconds = 0, 0.0
        """Fetched and built shards, and what they took to build."""
        self._budget_s = _GRACE_S
        """Seconds that may still be lost."""
        self._noted: set[str] = set()
        self._refused: set[str] = set()
        self._readers = ThreadPoolExecutor(_READERS, "tuneyard-tier")
        self._waiting: Queue[Callable[[], None]] = Queue(_WAITING)
        self._resume_at, self._pause_s = 0.0, _PAUSE_S
        self._evicting, self._evict_at = threading.Lock(), 0.0
        for _ in range(_WRITERS):
            threading.Thread(target=self._write_on, name="tuneyard-tier-writer", daemon=True).start()

    # --- fetch

    def fetch(self, wanted: Wanted) -> bool:
        with self._lock:
            if self._budget_s < 0:
                self._counts.passed_over += 1
                return False
            limit_s = self._limit_s()
        began = self._clock()
        reading = self._readers.submit(self._read, object_path(self._place.team, wanted.name))
        try:
            found = reading.result(limit_s)
            _write(wanted.path, found.content)
        except TakesTooLong:
            reading.cancel()
            return self._in_vain("slow", began, f"{self._place.uri} did not answer within {limit_s:.0f} s")
        except NotFound:
            return self._in_vain("missing", began)
        except Unusable as error:
            self._forget(wanted, str(error))
            return self._in_vain("", began)
        except (TuneyardError, OSError, ValueError) as error:
            return self._in_vain("failed", began, _told(error))
        took_s = self._clock() - began
        with self._lock:
            self._counts.fetched += 1
            self._counts.fetched_bytes += len(found.content)
            self._counts.fetch_s += took_s
            self._counts.saved_s += found.build_s - took_s
            self._earn(found.build_s)
            self._budget_s -= max(0.0, took_s - found.build_s)
            self._marks[wanted.mark] = "fetched"
        self._note_use(wanted.name, found.stored_at)
        return True

    def refuse(self, wanted: Wanted, why: str) -> None:
        with self._lock:
            if self._marks.pop(wanted.mark, "") == "fetched":
                self._counts.fetched -= 1
        self._forget(wanted, why)

    def _limit_s(self) -> float:
        return min(LONGEST_FETCH_S, max(_SHORTEST_FETCH_S, self._seconds / max(1, self._shards)))

    def _earn(self, build_s: float) -> None:
        self._shards, self._seconds, self._budget_s = self._shards + 1, self._seconds + build_s, self._budget_s + _LOST_SHARE * build_s

    def _read(self, path: str) -> Stored:
        return unwrapped(path, self._open().get(path))

    def _in_vain(self, what: str, began: float, problem: str = "") -> bool:
        took_s = self._clock() - began
        with self._lock:
            self._counts.lost_s += took_s
            self._budget_s -= took_s
            if what:
                setattr(self._counts, what, getattr(self._counts, what) + 1)
            self._counts.problem = self._counts.problem or problem
        return False

    def _forget(self, wanted: Wanted, why: str) -> None:
        """Count an object that is not the shard, and have the next store replace it."""
        url = join(self._place.uri, object_path(self._place.team, wanted.name))
        with self._lock:
            self._counts.refused += 1
            self._counts.problem = self._counts.problem or f"{url}: {why}"
            self._refused.add(wanted.name)

    # --- store

    def store(self, wanted: Wanted, build_s: float) -> None:
        with self._lock:
            self._counts.built += 1
            self._counts.build_s += build_s
            self._earn(build_s)
            self._marks[wanted.mark] = "built"
        self._soon(partial(self._put, wanted, build_s))

    def _soon(self, write: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(write)
        except Full:
            self._not_stored("")

    def _put(self, wanted: Wanted, build_s: float) -> None:
        path, store = object_path(self._place.team, wanted.name), self._open()
        if wanted.name in self._refused:
            store.delete(path)
            self._refused.discard(wanted.name)
        try:
            content = wanted.path.read_bytes()
        except OSError:  # removed to make room
            self._not_stored("")
            return
        try:
            store.create(path, wrapped(path, content, build_s=build_s, now=self._now()))
        except AlreadyExists:
            with self._lock:
                self._counts.stored_by_others += 1
            return
        with self._lock:
            self._counts.stored += 1
            self._counts.stored_bytes += len(content)
        self._evict()

    def _not_stored(self, problem: str) -> None:
        with self._lock:
            self._counts.not_stored += 1
            self._counts.problem = self._counts.problem or problem

    def _note_use(self, name: str, stored_at: float) -> None:
        if name in self._noted or self._now() - stored_at < _NOTED_AFTER_S:
            return
        self._noted.add(name)
        note = note_path(object_path(self._place.team, name))
        with contextlib.suppress(Full):
            self._waiting.put_nowait(lambda: self._open().put(note, b""))

    def _write_on(self) -> None:
        """The work of a thread that stores."""
        while True:
            write = self._waiting.get()
            try:
                if self._clock() < self._resume_at:
                    self._not_stored("")
                else:
                    write()
                    self._pause_s = _PAUSE_S
            except (TuneyardError, OSError, ValueError) as error:
                self._not_stored(_told(error))
                self._resume_at, self._pause_s = self._clock() + self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
            finally:
                self._waiting.task_done()

    def _evict(self) -> None:
        most, now = self._place.most_bytes, self._clock()
        if most is None or now < self._evict_at or not self._evicting.acquire(blocking=False):
            return
        try:
            self._evict_at = now + EVERY_S
            gone = evict(self._open(), self._place.team, most, now=self._now())
        except StorageError as error:
            with self._lock:
                self._counts.problem = self._counts.problem or _told(error)
        else:
            with self._lock:
                self._counts.evicted += gone.shards
                self._counts.evicted_bytes += gone.size_bytes
        finally:
            self._evicting.release()

    # --- counts

    def finish(self, marks: frozenset[str] = frozenset()) -> Counts:
        """Wait for stores under way, for a bounded time, and return the counts. `marks`: of the shards that rank 0 has read."""
        with self._lock:
            limit_s = min(_MOST_LAST_STORES_S, LAST_STORES_S + _LAST_SHARE * self._counts.build_s)
        deadline = self._clock() + limit_s
        while self._waiting.unfinished_tasks and self._clock() < deadline:
            time.sleep(0.01)
        with self._lock:
            left = self._waiting.unfinished_tasks
            late = "" if not left else f"{self._place.uri} takes long to store"
            found = len(marks - self._marks.keys())
            return replace(self._counts, found=found, not_stored=self._counts.not_stored + left, problem=self._counts.problem or late)

    def take_counts(self) -> Counts:
        """The counts since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counts()
            return taken


def _told(error: Exception) -> str:
    return error.cause if isinstance(error, TuneyardError) else str(error)


def _write(path: Path, content: memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_room(path.parent, len(content))
    beside = unfinished_name(path)
    try:
        beside.write_bytes(content)
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)
