"""A pool of workers as Ray actors. It hands out parts of the rows until all are committed, and survives deaths of workers.

A worker is an engine of a language model, a client of an endpoint, or a ranker: one actor, and on `cpu` one process. It gets its next parts
before it runs dry, so that its batch stays full. A dead worker is replaced, and only its uncommitted parts are scored again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from tuneyard.api import Blame, FailureKind, JobFailed, TuneyardError
from tuneyard.api.errors import said_by
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.machines import engine_log
from tuneyard.runtime.score.engine import EngineLogs, LoggedWorker
from tuneyard.runtime.score.worker import actor_options, error_of_worker
from tuneyard.scoring import Loaded, Measured, OpenWork, PartDone, Partition, ScoreRequest, Work, work_of
from tuneyard.tracking import Charged, Emit, Scored, Stage, Warned, silent

_TICK_S = 1.0
_LIVES = 4
"""Deaths in a row, without a committed part, after which a worker is not started again."""
_FIRST_PAUSE_S = 1.0
_CLOSE_LIMIT_S = 5.0
_LESS_MEMORY = {
    "engine": "engine.kvCache or engine.batch",
    "client": "engine.endpoint.atOnce",
    "ranker": "ranking.batch or resources.instances",
}
_PART_LIVES = 3
"""Most workers that one part may kill: a row that kills a worker would kill each new one."""


def score(
    request: ScoreRequest,
    *,
    emit: Emit = silent,
    should_stop: Callable[[], bool] = lambda: False,
    logs: EngineLogs | None = None,
    server: Path | None = None,
) -> Any:
    """Score a data set. Returns a ScoreResult, or the RankedResult of a ranker. Ray must be initialised.

    `logs`: place of the workers' logs; None: Ray keeps their output. `server`: socket of a fork server with vLLM loaded, on each machine.

    Raises BadInput (see `scoring.work_of`; also for an adapter or model that engines cannot load) and JobFailed: workers that cannot load
    or keep dying, or too many rows with errors. Committed parts are kept in all cases.
    """
    began = time.monotonic()
    harness = request.task.data.lm_eval is not None
    emit(Stage(task=request.name, name="making requests of lm-evaluation-harness" if harness else "opening rows"))
    work = work_of(request)
    beside: list[Any] = []
    try:
        if not work.missing:
            wall_s = time.monotonic() - began
            return work.finish(Measured(wall_s=wall_s, load_s=0.0, generation_s=0.0, deaths=0, stopped=False, settings=None))
        pool = WorkerPool(work, emit, logs, server)
        try:
            stopped = pool.run(should_stop)
        finally:
            beside += pool.close()
        if harness:
            emit(Stage(task=request.name, name="computing figures of lm-evaluation-harness"))
        result = work.finish(pool.measured(wall_s=time.monotonic() - began, stopped=stopped))
    finally:
        _tell_charge(work, beside, emit)
    for message in work.warnings(result):
        emit(Warned(task=request.name, message=message))
    return result


def _tell_charge(work: Work, beside: list[Any], emit: Emit) -> None:
    """Tell what endpoints charge for this attempt, however it has ended. Where the storage is away, the next attempt is charged for its
    committed parts. This one has a charge in any case: one without counts as one of an earlier version, whose whole cost counts."""
    try:
        amount = work.charged(beside)
    except TuneyardError as error:
        amount = work.charged_beside(beside)
        message = f"the charge for committed parts could not be recorded, and counts only if the task is resumed: {error.cause}"
        emit(Warned(task=work.request.name, message=message))
    if amount is not None:
        emit(Charged(task=work.request.name, amount=amount))


@dataclass
class _Slot:
    """Room for one worker: its actor, its open work, and the deaths in a row of its workers."""

    rank: int
    actor: Any = None
    ready: bool = False
    deaths_in_a_row: int = 0
    start_at: float = 0.0
    open_work: OpenWork = field(default_factory=lambda: OpenWork(0, 0, 0))

    @property
    def given_up(self) -> bool:
        return self.deaths_in_a_row >= _LIVES


@dataclass(frozen=True)
class _Asked:
    """A call without an answer yet. `part`: for `score`; None for `load`, `place` and `open_work`."""

    slot: _Slot
    part: int | None = None


class WorkerPool:
    """The workers of one task, and the open calls to them. Call `run` once, then `close`."""

    def __init__(self, work: Work, emit: Emit, logs: EngineLogs | None = None, server: Path | None = None) -> None:
        request = work.request
        self._work, self._emit, self._name, self._noun = work, emit, request.name, work.noun
        self._logs = logs
        self._order = ray.put(work.order)
        instances = min(request.instances, len(work.missing))
        self._partition = Partition(work.missing, instances)
        self._slots = [_Slot(rank) for rank in range(instances)]
        self._depth = work.parts_in_hand
        self._options = actor_options(request, instances, self._depth, server)
        self._asked: dict[Any, _Asked] = {}
        self._part_deaths: dict[int, int] = {}
        self._loaded: Loaded | None = None
        self._generating_since: float | None = None
        self._last_commit = 0.0
        self._began = time.monotonic()
        self._deaths = 0
        self._remarked: set[str] = set()

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Run until all parts are committed (False), or until a stop is asked for (True)."""
        self._emit(Stage(task=self._name, name=f"loading {self._noun}s", done=0, of=len(self._slots), unit=f"{self._noun}s"))
        reported = time.monotonic()
        while not self._partition.finished:
            if should_stop():
                return True
            self._start_workers()
            self._hand_out()
            for reference in self._wait():
                self._settle(reference, self._asked.pop(reference))
            if time.monotonic() - reported >= _TICK_S:
                reported = time.monotonic()
                self._report()
        self._report()
        return False

    def close(self) -> list[Any]:
        """End the workers. Their uncommitted parts are lost. Returns what their `close` has returned."""
        loaded = [slot.actor.close.remote() for slot in self._slots if slot.ready]
        closed: list[Any] = []
        for reference in ray.wait(loaded, num_returns=len(loaded), timeout=_CLOSE_LIMIT_S)[0] if loaded else ():
            with suppress(RayError):  # it has died meanwhile
                closed.append(ray.get(reference))
        for slot in self._slots:
            self._end(slot)
        return closed

    def measured(self, *, wall_s: float, stopped: bool) -> Measured:
        since = self._generating_since
        return Measured(
            wall_s=wall_s,
            load_s=since - self._began if since is not None else 0.0,
            generation_s=max(0.0, self._last_commit - since) if since is not None else 0.0,
            deaths=self._deaths,
            stopped=stopped,
            settings=self._loaded.settings if self._loaded else None,
            chats=self._loaded.chats if self._loaded else None,
        )

    def new_worker(self, rank: int = 0) -> Any:
        """A new actor, which has not loaded its model yet."""
        if self._logs is None:
            return ray.remote(self._work.worker).options(**self._options).remote(self._order)
        log = self._logs.folder / engine_log(self._name, rank).file
        return ray.remote(LoggedWorker).options(**self._options).remote(self._work.worker, self._order, rank, log)

    # --- workers ------------------------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        if all(slot.given_up for slot in self._slots):
            raise JobFailed(
                f"all {len(self._slots)} {self._noun}s died {_LIVES} times in a row",
                f"read their logs; a worker that is killed while loading often lacks memory: lower {_LESS_MEMORY[self._noun]}",
                kind=FailureKind.NODE_LOST,
                blame=Blame(rank=self._slots[0].rank),
            )
        for slot in self._slots:
            running = sum(other.actor is not None for other in self._slots)
            due = slot.actor is None and not slot.given_up and time.monotonic() >= slot.start_at
            if due and running < self._partition.outstanding:
                slot.actor = self.new_worker(slot.rank)
                if self._logs is not None:
                    self._asked[slot.actor.place.remote()] = _Asked(slot)
                self._asked[slot.actor.load.remote()] = _Asked(slot)

    def _lost(self, slot: _Slot, cause: str) -> None:
        if slot.actor is None:
            return  # another call of the same actor has reported it already
        self._end(slot)
        self._asked = {reference: asked for reference, asked in self._asked.items() if asked.slot is not slot}
        parts = self._partition.give_back(slot.rank)
        slot.deaths_in_a_row += 1
        slot.start_at = time.monotonic() + _FIRST_PAUSE_S * 4 ** (slot.deaths_in_a_row - 1)
        self._deaths += 1
        again = "it is not started again" if slot.given_up else "another takes its place"
        self._emit(Warned(task=self._name, message=f"{self._noun} {slot.rank} died with {len(parts)} parts in hand; {again} ({cause})"))
        for part in parts:
            self._part_deaths[part] = self._part_deaths.get(part, 0) + 1
            if self._part_deaths[part] >= _PART_LIVES:
                start, stop = self._work.layout.bounds(part)
                raise JobFailed(
                    f"{_PART_LIVES} {self._noun}s died over part {part} (rows {start} to {stop - 1})",
                    f"look for a row there that the {self._noun} cannot process; committed parts are kept",
                    blame=Blame(rank=slot.rank),
                )

    def _end(self, slot: _Slot) -> None:
        if slot.actor is not None:
            ray.kill(slot.actor)
        slot.actor, slot.ready, slot.open_work = None, False, OpenWork(0, 0, 0)

    # --- parts --------------------------------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        # Near the end a worker takes at most its share of the remaining parts, so that all end together.
        fair = -(-self._partition.outstanding // max(1, sum(slot.ready for slot in self._slots)))
        for slot in self._slots:
            while slot.ready and len(self._partition.held_by(slot.rank)) < min(self._depth, max(1, fair)):
                part = self._partition.take(slot.rank)
                if part is None:
                    break
                self._asked[slot.actor.score.remote(part)] = _Asked(slot, part=part)

    def _wait(self) -> list[Any]:
        if not self._asked:
            time.sleep(_TICK_S / 10)  # every worker waits for its restart
            return []
        ready, _ = ray.wait(list(self._asked), num_returns=1, timeout=_TICK_S)
        return list(ready)

    def _settle(self, reference: Any, asked: _Asked) -> None:
        try:
            answer = ray.get(reference)
        except RayActorError as error:
            self._lost(asked.slot, said_by(error))
            return
        except OutOfMemoryError:  # another process may have used the memory: Ray chooses the victim
            self._lost(asked.slot, "the machine ran low on memory, and Ray ended it")
            return
        except RayTaskError as error:
            raise error_of_worker(error) from error
        if isinstance(answer, Loaded):
            self._now_ready(asked.slot, answer)
        elif isinstance(answer, PartDone):
            self._committed(asked.slot, answer)
        elif isinstance(answer, OpenWork):
            asked.slot.open_work = answer
        elif isinstance(answer, RankProcess) and self._logs is not None:
            self._logs.on_place(answer)

    def _now_ready(self, slot: _Slot, loaded: Loaded) -> None:
        slot.ready, self._loaded = True, loaded
        cold = [f"engines start cold: {loaded.why_cold}"] if loaded.why_cold else []
        for message in (*cold, *loaded.warnings):
            if message not in self._remarked:
                self._remarked.add(message)
                self._emit(Warned(task=self._name, message=message))
        if self._generating_since is None:
            self._generating_since = self._last_commit = time.monotonic()
        ready = sum(slot.ready for slot in self._slots)
        self._emit(Stage(task=self._name, name=f"loading {self._noun}s", done=ready, of=len(self._slots), unit=f"{self._noun}s"))

    def _committed(self, slot: _Slot, done: PartDone) -> None:
        self._partition.done(done.part)
        self._last_commit = time.monotonic()
        slot.deaths_in_a_row, slot.open_work = 0, done.open_work
        self._work.take(done.sums)

    @property
    def _loaded_an_engine(self) -> bool:
        return self._loaded is not None and self._loaded.settings is not None

    # --- progress -----------------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self._generating_since is None:
            return
        resumed, ours = self._work.resumed, self._work.counted
        open_work = [slot.open_work for slot in self._slots]
        new_rows = ours.rows + sum(work.rows for work in open_work)
        tokens = ours.output_tokens + sum(work.output_tokens for work in open_work)
        of, elapsed = self._work.layout.rows, time.monotonic() - self._generating_since
        self._emit(
            Scored(
                task=self._name,
                rows=resumed.rows + new_rows,
                of=of,
                errors=ours.errors + resumed.errors + sum(work.errors for work in open_work),
                output_tokens_per_s=tokens / elapsed if elapsed else 0.0,
                rows_per_s=new_rows / elapsed if elapsed and not self._loaded_an_engine else None,
                eta_s=(of - resumed.rows - new_rows) * elapsed / new_rows if new_rows else 0.0,
            )
        )
        waiting = {asked.slot.rank for asked in self._asked.values() if asked.part is None}
        for slot in self._slots:
            if slot.ready and slot.rank not in waiting:
                self._asked[slot.actor.open_work.remote()] = _Asked(slot)
