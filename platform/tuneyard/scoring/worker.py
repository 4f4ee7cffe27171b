"""A worker with one engine: it reads the rows of a part, scores them, and commits the part.

It does not import Ray: `runtime` wraps it in an actor. The caller's thread reads, tokenises and writes its part. One thread of the worker
drives the engine, so that several parts overlap in the engine and its batch stays full.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuneyard.api import JobFailed, TuneyardError
from tuneyard.data import ScoreRows
from tuneyard.scoring.charges import Spent
from tuneyard.scoring.exchange import Asked, Engine, Prompts
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.own_metrics import OwnMetrics
from tuneyard.scoring.parts import Columns, Layout, commit, part_path, read_sums
from tuneyard.scoring.rank_deaths import RankLost, end_process
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.settings import EngineSettings
from tuneyard.scoring.similarity import Similarities
from tuneyard.storage import open_store


@dataclass(frozen=True)
class WorkOrder:
    """The input of every worker of a task; can be pickled."""

    request: ScoreRequest
    rows: ScoreRows
    layout: Layout
    columns: Columns


@dataclass(frozen=True)
class Loaded:
    """A ready worker. `why_cold`: the reason why its process was started cold although a fork was requested."""

    pid: int
    load_s: float
    settings: EngineSettings | None
    """Settings of the engine; None for a ranker."""
    chats: bool | None
    """Whether the chat template renders prompts; None for a ranker."""
    why_cold: str = ""
    warnings: tuple[str, ...] = ()
    """Sentences for the user, about the embedding model."""


@dataclass(frozen=True)
class OpenWork:
    """Counts of finished rows in parts that are not committed yet."""

    rows: int
    errors: int
    output_tokens: int


@dataclass(frozen=True)
class PartDone:
    """A committed part, with the sums of its file, which this worker or an earlier attempt has written."""

    part: int
    sums: Any
    """`metrics.Sums` for an engine; JSON values for a ranker."""
    open_work: OpenWork
    """The remaining open work of this worker."""


class PartWorker:
    """Call `load` first, then `score` from several threads, one per part in progress. `VllmWorker` and `EndpointWorker` say how to load.

    It must run in its own process, because it ends the process when a rank of its engine is killed.
    """

    def __init__(self, order: WorkOrder) -> None:
        self._order = order
        self._store = open_store(order.request.output)
        self._asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._open: dict[int, OpenPart] = {}
        self._tokenizer_lock = threading.Lock()
        self._broken: BaseException | None = None
        self._in_parts, self._closed, self._counting = Spent(), False, threading.Lock()
        self._engine: Engine | None = None
        self._own = OwnMetrics([], None)
        self._similarities: Similarities | None = None

    def load(self) -> Loaded:
        """Make the engine, then call `_begin`. Raises BadInput for unusable inputs, JobFailed for failures of the engine."""
        raise NotImplementedError

    def _begin(self, engine: Engine, prompts: Prompts) -> None:
        """Start the thread that drives the engine."""
        self._engine, self._prompts = engine, prompts
        threading.Thread(target=self._drive, name="engine", daemon=True).start()

    @property
    def _warnings(self) -> tuple[str, ...]:
        return self._similarities.warnings if self._similarities is not None else ()

    def _ordered(self, requests: list[Asked]) -> list[Asked]:
        """The requests of a part in the order in which the engine gets them."""
        return requests

    def _flops(self, part: OpenPart) -> float:  # noqa: ARG002 - a worker that knows the model counts them
        """Model FLOPs of a finished part; 0 where the model is not known."""
        return 0.0

    def score(self, part: int) -> PartDone:
        """Score the rows of a part and commit it. Raises the error of a failed engine."""
        start, stop = self._order.layout.bounds(part)
        rows = self._order.rows.read(start, stop)
        in_hand = OpenPart(rows, self._order.request.task, self._own, self._similarities)
        with self._tokenizer_lock:
            requests = in_hand.requests(self._prompts)
        self._open[part] = in_hand
        try:
            if self._broken is not None:
                in_hand.abandon(self._broken)
            for request in self._ordered(requests):
                self._asked.put(request)
            scored = in_hand.finish()
            sums = Sums.of(scored, self._order.columns.metrics)
            sums.flops = self._flops(in_hand)
            content = self._order.columns.encode(rows, scored, sums)
            self._count_in_parts(Spent.of(sums))
            try:
                ours = commit(self._store, part, content)
            except TuneyardError:
                # Where this raises too, the part may be there: its tokens stay counted, so that they are never charged twice.
                if not self._store.exists(part_path(part)):
                    self._count_in_parts(Spent().minus(Spent.of(sums)))
                raise
            if not ours:
                self._count_in_parts(Spent().minus(Spent.of(sums)))
        finally:
            del self._open[part]
        return PartDone(part, sums if ours else read_sums(self._store, part), self.open_work())

    def _count_in_parts(self, spent: Spent) -> None:
        """Count tokens of a part before it is committed. Raises JobFailed after `close`, which counts them as those of no part."""
        with self._counting:
            if self._closed:
                raise JobFailed("the worker is closed", "score the part again")
            self._in_parts = self._in_parts.plus(spent)

    def _spent(self) -> Spent:
        """All tokens that endpoints have charged for."""
        return Spent(embeddings=self._similarities.paid) if self._similarities is not None else Spent()

    def open_work(self) -> OpenWork:
        """Finished work that is not committed yet. Cheap enough for a call every second."""
        parts = list(self._open.values())
        return OpenWork(sum(p.rows_done for p in parts), sum(p.errors for p in parts), sum(p.output_tokens for p in parts))

    def close(self) -> Spent:
        """Remove the engine's files, and end the process of own metrics. The process must end after this call, which commits no part.

        Returns the tokens that endpoints have charged for and that are in no part of this worker.
        """
        with self._counting:
            self._closed = True
            beside = self._spent().minus(self._in_parts)
        self._own.close()
        if self._engine is not None:
            self._engine.close()
        return beside

    def _drive(self) -> None:
        assert self._engine is not None
        try:
            for answer in self._engine.run(self._next_requests()):
                open_part, index = answer.key
                for again in open_part.take(index, answer):
                    self._asked.put(again)
        except RankLost as error:
            end_process(error)
        except BaseException as error:
            self._broken = error
            for open_part in list(self._open.values()):
                open_part.abandon(error)
            if not isinstance(error, TuneyardError):
                raise  # for the log

    def _next_requests(self) -> Iterator[Asked | None]:
        assert self._engine is not None
        while True:
            try:
                yield self._asked.get(block=self._engine.in_flight == 0)
            except queue.Empty:
                yield None
