"""The master of an ingestion service: leases splits to data workers, replaces dead ones, and scales their number to the ranks' need.

The master leases splits in the order of the requests, and takes back leases of slow or dead workers. Its state comes from requests alone: a
restarted master starts empty, and the fetchers ask again.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import DataService
from tuneyard.data.shared.place import Counts

_KEPT_SHARDS, _FEWEST_KEPT_SHARDS, _KEPT_BYTES = 256, 64, 2 << 30
"""Finished shards that the master keeps references to: most, fewest, and the budget in bytes that decides in between."""
_SCALE_EVERY_S = 2.0
_WAITING_SHARE = 0.01
"""Share of the time that a rank waits for rows. Above it, the master adds workers."""
_MOST_AT_ONCE = 4
"""Largest factor by which the number of workers grows at once."""
_IDLE_S = 60.0
_FINISH_S = 45.0
"""Seconds for workers to store shards at the end of a task."""
_SLOWEST_S = 30.0
_SLOW_TIMES = 8.0
"""A lease ends after 30 s, or after 8 times the median duration if that is later. The time doubles with each loss of its split."""

Key = tuple[str, int]
"""Stream and split."""


@dataclass
class _Lease:
    """A split that a worker builds."""

    key: Key
    problem: Any
    shard: Any
    since: float


@dataclass
class _Worker:
    actor: Any
    starting: Any
    """Reference that resolves once the worker runs; None from then on."""
    idle_since: float
    """Time of its start, or of its last shard."""
    pid: int = 0
    lease: _Lease | None = None

    def rests(self, now: float) -> bool:
        """Whether the worker has been idle for long."""
        return self.lease is None and now - self.idle_since > _IDLE_S


@dataclass(frozen=True)
class _Made:
    """A finished shard. `problem`: why the shard could not be built, or empty."""

    problem: str
    shard: Any
    worker: _Worker


def workers_needed(running: int, waiting: float) -> int:
    """Number of workers that the ranks need. `running`: workers, all fully busy; `waiting`: share of the time that a rank waits, 0 to 1.

    Ranks that wait for a share w take rows at (1 - w) of their full rate, which is just the rate of the running workers.
    """
    return math.ceil(running / max(1 - waiting, 1 / _MOST_AT_ONCE))


@dataclass
class Account:
    """Figures of the service for the report."""

    shards: int = 0
    workers: int = 0
    most_workers: int = 0
    started: int = 0
    replaced: int = 0
    leases_lost: int = 0
    waited_s: float = 0.0
    """Seconds that ranks waited, on the machine where they waited longest."""
    fetched_bytes: int = 0
    """Bytes of fetched shards, over all machines."""
    fetch_s: float = 0.0
    """Seconds of fetching, on the machine where it took longest."""
    shared: Counts = field(default_factory=Counts)
    """Of shared shards, over all data workers."""
    pids: tuple[int, ...] = ()
    """Process ids of the running workers."""


class IngestMaster:
    """Leases splits to workers. Its state comes from requests alone: a restarted master starts empty, and is asked again."""

    def __init__(self, service: DataService, make_worker: Callable[[], Any]) -> None:
        self._service, self._make_worker = service, make_worker
        self._streams: dict[str, Any] = {}
        self._wanted: OrderedDict[Key, None] = OrderedDict()
        self._done: OrderedDict[Key, _Made] = OrderedDict()
        self._workers: list[_Worker] = []
        self._seconds: list[float] = []
        self._lost: Counter[Key] = Counter()
        self._waited: dict[str, tuple[float, float]] = {}
        self._fetch_s: dict[str, float] = {}
        self._fetches = 0
        self._scaled_at = self._waited_at = time.monotonic()
        self.account = Account()

    def open_stream(self, key: str, blob: bytes) -> None:
        """Register a stream before its splits are requested. `blob`: the argument of `stream_of`."""
        import ray

        self._streams[key] = ray.put(blob)
        while len(self._workers) < self._service.min_workers:
            self._add_worker()

    def want(self, machine: str, key: str, splits: Sequence[int], waited_s: float) -> dict[int, tuple[str, Any]] | None:
        """The finished ones among these splits, each with its problem (or an empty text) and a reference to its shard's bytes. The others
        are leased next, in this order. None if the stream is not known."""
        if key not in self._streams:
            return None
        self._waited.setdefault(machine, (waited_s, waited_s))
        self._waited[machine] = (self._waited[machine][0], waited_s)
        for number in splits:
            if (key, number) not in self._done and not self._is_leased((key, number)):
                self._wanted.setdefault((key, number))
        self._turn()
        found = {number: self._done[key, number] for number in splits if (key, number) in self._done}
        for number in found:
            self._done.move_to_end((key, number))
        return {number: (made.problem, made.shard) for number, made in found.items()}

    def lost(self, key: str, number: int) -> None:
        """Record that a finished shard cannot be fetched, because its machine is gone."""
        if self._done.pop((key, number), None) is not None:
            self.account.leases_lost += 1

    def fetched(self, machine: str, size_bytes: int, seconds: float) -> None:
        """Record that a machine has fetched a shard."""
        self._fetches += 1
        self.account.fetched_bytes += size_bytes
        self._fetch_s[machine] = self._fetch_s.get(machine, 0.0) + seconds
        self.account.fetch_s = max(self._fetch_s.values())

    def report(self) -> Account:
        self.account.workers = len(self._workers)
        self.account.pids = tuple(worker.pid for worker in self._workers if worker.pid)
        self.account.waited_s = max((waited for _, waited in self._waited.values()), default=0.0)
        return self.account

    def finish(self) -> None:
        """Have workers store what they have built for other jobs, and add their last counts. Shards that others build now are left out."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            idle = [worker.actor.finish.remote() for worker in self._workers if worker.lease is None and worker.starting is None]
            for answer in ray.wait(idle, num_returns=len(idle), timeout=_FINISH_S)[0] if idle else ():
                self.account.shared.add(ray.get(answer))

    # --- one turn: take in answers, replace slow and dead workers, lease splits to idle ones

    def _turn(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.starting is not None:
                self._greet(worker, now)
            if worker.lease is not None:
                self._look(worker, worker.lease, now)
        self._scale(now)
        for worker in self._workers:
            if worker.lease is None and worker.starting is None and self._wanted:
                (key, number), _ = self._wanted.popitem(last=False)
                problem, shard = worker.actor.build.options(num_returns=2).remote(key, self._streams[key], number)
                worker.lease = _Lease((key, number), problem, shard, now)

    def _look(self, worker: _Worker, lease: _Lease, now: float) -> None:
        import ray

        if ray.wait([lease.problem], timeout=0)[0]:
            try:
                built = ray.get(lease.problem)
            except ray.exceptions.RayError:
                self._replace(worker)
                return
            self._done[lease.key] = _Made(built.problem, lease.shard, worker)
            self.account.shared.add(built.shared)
            while len(self._done) > self._kept_shards:
                self._done.popitem(last=False)
            self._seconds = [*self._seconds[-99:], now - lease.since]
            self.account.shards += 1
            worker.lease, worker.idle_since = None, now
        elif now - lease.since > self._lease_limit_s(lease.key):
            self._replace(worker)

    @property
    def _kept_shards(self) -> int:
        """Number of kept shards that together have `_KEPT_BYTES`, by the mean size of fetched shards."""
        mean = self.account.fetched_bytes / max(1, self._fetches)
        return int(min(_KEPT_SHARDS, max(_FEWEST_KEPT_SHARDS, _KEPT_BYTES / max(1.0, mean))))

    def _greet(self, worker: _Worker, now: float) -> None:
        """Mark a worker as running once Ray has started it, for which it may wait for room. Only running workers get leases."""
        import ray

        if ray.wait([worker.starting], timeout=0)[0]:
            try:
                worker.pid = ray.get(worker.starting)
            except ray.exceptions.RayError:
                self._replace(worker)
            else:
                worker.starting, worker.idle_since = None, now

    def _lease_limit_s(self, key: Key) -> float:
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        return float(max(_SLOWEST_S, _SLOW_TIMES * usual) * 2 ** self._lost[key])

    def _is_leased(self, key: Key) -> bool:
        return any(worker.lease is not None and worker.lease.key == key for worker in self._workers)

    def _replace(self, worker: _Worker) -> None:
        """End a worker, start another, and put its split first in the queue."""
        self._end(worker)
        self.account.replaced += 1
        if worker.lease is not None:
            self._lost[worker.lease.key] += 1
            self._wanted[worker.lease.key] = None
            self._wanted.move_to_end(worker.lease.key, last=False)
        self._add_worker()

    def _scale(self, now: float) -> None:
        if now - self._scaled_at < _SCALE_EVERY_S:
            return
        waiting = max((last - first for first, last in self._waited.values()), default=0.0) / (now - self._scaled_at)
        self._waited = {machine: (last, last) for machine, (_, last) in self._waited.items()}
        self._scaled_at = now
        if waiting > _WAITING_SHARE:
            self._waited_at = now
        running = [worker for worker in self._workers if worker.starting is None]
        if waiting > _WAITING_SHARE and self._wanted and running and all(worker.lease is not None for worker in running):
            needed = min(workers_needed(len(running), waiting), self._service.max_workers)
            while len(self._workers) < needed:
                self._add_worker()
        elif len(self._workers) > self._service.min_workers:
            quiet = now - self._waited_at > _IDLE_S
            resting = next((each for each in self._workers if each.rests(now) and (quiet or each.starting is None)), None)
            if resting is not None:
                self._retire(resting)

    def _retire(self, worker: _Worker) -> None:
        """End a worker that is not needed, and drop its shards: Ray keeps a machine as long as references to its objects exist."""
        self._end(worker)
        for key in [key for key, made in self._done.items() if made.worker is worker]:
            del self._done[key]

    def _add_worker(self) -> None:
        actor = self._make_worker()
        self._workers.append(_Worker(actor, actor.ready.remote(), time.monotonic()))
        self.account.started += 1
        self.account.most_workers = max(self.account.most_workers, len(self._workers))

    def _end(self, worker: _Worker) -> None:
        import ray

        self._workers.remove(worker)
        with contextlib.suppress(Exception):
            ray.kill(worker.actor)
