"""A worker with one engine: it reads the rows of a part, scores them, and commits the part.

It does not import Ray: `runtime` wraps it in an actor. The caller's thread reads, tokenises and writes its part. One thread of the worker
drives the engine, so that several parts overlap in the engine and its batch stays full.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tuneyard.api import Adapter, BadInput, FailureKind, JobFailed, TuneyardError
from tuneyard.catalog import ModelShape, adapted_projections
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.data import ScoreRows
from tuneyard.scoring.adapter import MERGE
from tuneyard.scoring.engine import Asked, Engine
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.parts import Columns, Layout, commit, read_sums
from tuneyard.scoring.prompts import PromptEncoder
from tuneyard.scoring.ranks import RankLost
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.settings import EngineSettings, resolve_engine
from tuneyard.storage import fetch_folder, open_store
from tuneyard.warm import WHY_COLD


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
    """Call `load` first, then `score` from several threads, one per part in progress.

    It must run in its own process, because it ends the process when a rank of its engine is killed.
    """

    def __init__(self, order: WorkOrder) -> None:
        self._order = order
        self._store = open_store(order.request.output)
        self._asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._open: dict[int, OpenPart] = {}
        self._tokenizer_lock = threading.Lock()
        self._broken: BaseException | None = None
        self._engine: Engine | None = None

    def load(self) -> Loaded:
        """Fetch the model and load the engine. Raises BadInput for unusable inputs, JobFailed for failures of the engine."""
        began = time.perf_counter()
        request = self._order.request
        cache = Path(request.scratch) / "models"
        model = fetch_folder(request.model_uri, cache)
        adapter = fetch_folder(request.adapter_uri, cache) if request.adapter_uri else None
        self._shape = model_shape_of(config_in(model))
        self._settings = resolve_engine(request.task, model, self._shape, adapter, sku=request.sku)
        self._adapter = _countable_adapter(self._shape, self._settings)
        tokenizer = _tokenizer(self._settings)
        self._prompts = PromptEncoder(tokenizer, chat=request.task.data.chat, max_length=self._settings.max_length)
        try:
            self._engine = Engine(self._settings, request.task.generation, self._prompts.ends)
        except RankLost as error:
            _end_process(error)
        except Exception as error:
            raise _load_failure(error, self._settings) from error
        threading.Thread(target=self._drive, name="engine", daemon=True).start()
        return Loaded(os.getpid(), time.perf_counter() - began, self._settings, self._prompts.chats, os.environ.get(WHY_COLD, ""))

    def score(self, part: int) -> PartDone:
        """Score the rows of a part and commit it. Raises the error of a failed engine."""
        start, stop = self._order.layout.bounds(part)
        rows = self._order.rows.read(start, stop)
        in_hand = OpenPart(rows, self._order.request.task)
        with self._tokenizer_lock:
            requests = in_hand.requests(self._prompts)
        self._open[part] = in_hand
        try:
            if self._broken is not None:
                in_hand.abandon(self._broken)
            for request in requests:
                self._asked.put(request)
            scored = in_hand.finish()
            sums = Sums.of(scored, self._order.columns.metrics)
            sums.flops = in_hand.flops(self._shape, self._adapter)
            ours = commit(self._store, part, self._order.columns.encode(rows, scored, sums))
        finally:
            del self._open[part]
        return PartDone(part, sums if ours else read_sums(self._store, part), self.open_work())

    def open_work(self) -> OpenWork:
        """Finished work that is not committed yet. Cheap enough for a call every second."""
        parts = list(self._open.values())
        return OpenWork(sum(p.rows_done for p in parts), sum(p.errors for p in parts), sum(p.output_tokens for p in parts))

    def close(self) -> None:
        """Remove the engine's files. The process must end after this call."""
        if self._engine is not None:
            self._engine.close()

    def _drive(self) -> None:
        assert self._engine is not None
        try:
            for answer in self._engine.run(self._next_requests()):
                open_part, index = answer.key
                open_part.take(index, answer)
        except RankLost as error:
            _end_process(error)
        except BaseException as error:
            self._broken = error
            for open_part in list(self._open.values()):
                open_part.abandon(error)
            raise

    def _next_requests(self) -> Iterator[Asked | None]:
        assert self._engine is not None
        while True:
            try:
                yield self._asked.get(block=self._engine.in_flight == 0)
            except queue.Empty:
                yield None


def _end_process(error: RankLost) -> NoReturn:
    """End this process as if it had been killed. Its owner replaces it, and scores its parts again."""
    print(f"the engine ends: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def _tokenizer(settings: EngineSettings) -> Any:
    """A second tokenizer: the engine's thread uses the engine's own. Raises BadInput where there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(settings.tokenizer, trust_remote_code=settings.trust_remote_code)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{settings.tokenizer} holds no tokenizer that can be loaded: {_first_line(error)}", "save one beside the model"
        ) from error


def _countable_adapter(shape: ModelShape, settings: EngineSettings) -> Adapter | None:
    """The adapter for counting FLOPs; None where its targets are unknown, which leaves out about one percent."""
    if settings.adapter is None:
        return None
    adapter = settings.adapter.as_trained()
    try:
        adapted_projections(shape, adapter)
    except BadInput:
        return None
    return adapter


def _load_failure(error: Exception, settings: EngineSettings) -> TuneyardError:
    raised = getattr(error, "raised", type(error).__name__)
    if raised in ("OutOfMemoryError", "MemoryError"):
        return JobFailed(
            f"the engine ran out of memory while it loaded {settings.model}: {_first_line(error)}",
            "lower engine.maxLength or engine.batch, raise engine.tensorParallel, or take a machine with more memory",
            kind=FailureKind.OUT_OF_MEMORY,
        )
    if settings.adapter is not None and "lora" in str(error).lower():
        return BadInput(f"the engine cannot apply an adapter to {settings.model}: {_first_line(error)}", MERGE)
    return JobFailed(
        f"the engine cannot load {settings.model}: {_reason(error)}",
        "is it a complete model folder of an architecture that vLLM knows? `--debug` shows the engine's own error",
    )


def _reason(error: Exception) -> str:
    """The first line of an error; of a validation error the first three lines, because its first line is only a count."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    validation = len(lines) > 1 and "validation error" in lines[0]
    return " ".join(lines[:3])[:600] if validation else _first_line(error)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
