"""A worker with a ranker: it reads the rows of a part, scores them, and commits the part.

It does not import Ray: `runtime` wraps it in an actor. One thread runs the ranker. While it scores a part, the threads of the callers read
the next part and write the one before.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tuneyard.api import JobFailed
from tuneyard.ranking import JudgedRows, coded
from tuneyard.scoring.parts import Layout, commit, encoded, output_name, read_footer
from tuneyard.scoring.ranker.rows import Piece, RowsByNumber
from tuneyard.scoring.ranker.sums import EvaluationSettings, LabelSums, RankedSums, numbers_of, places_of
from tuneyard.scoring.ranker.table import RankedTable
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.worker import Loaded, OpenWork, PartDone
from tuneyard.storage import fetch_folder, open_store

if TYPE_CHECKING:
    from tuneyard.scoring.ranker.probabilities import Scorer


@dataclass(frozen=True)
class RankerOrder:
    """The input of every worker of a task; can be pickled."""

    request: ScoreRequest
    table: RankedTable
    layout: Layout
    judging: EvaluationSettings


@dataclass
class _Scored:
    """Output columns that scoring adds, row by row, and the sums."""

    probabilities: np.ndarray[Any, np.dtype[np.float32]]
    errors: list[str | None]
    sums: RankedSums


class RankerWorker:
    """Call `load` first, then `score` from several threads, one per part in progress."""

    def __init__(self, order: RankerOrder) -> None:
        self._order = order
        self._store = open_store(order.request.output)
        self._rows = RowsByNumber(order.table.table, order.table.columns)
        self._reading = threading.Lock()
        self._torch = ThreadPoolExecutor(1)  # torch keeps a pool of threads for each thread that uses it
        self._scorer: Scorer | None = None

    def load(self) -> Loaded:
        """Fetch the ranker and load it. Raises BadInput for a folder without a ranker, JobFailed where it does not fit into memory."""
        began = time.perf_counter()
        self._scorer = self._torch.submit(self._loaded).result()
        return Loaded(os.getpid(), time.perf_counter() - began, None, None)

    def _loaded(self) -> Scorer:
        import torch

        from tuneyard.ranking import load
        from tuneyard.scoring.ranker.probabilities import Scorer

        request = self._order.request
        folder = fetch_folder(request.model_uri, Path(request.scratch) / "models")
        device = torch.device("cpu" if request.sku == "cpu" else "cuda")
        try:
            return Scorer(load(folder), request.task.ranking.batch, device)
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise JobFailed(
                f"the ranker in {folder} does not fit into memory", "use a machine with more memory, or fewer instances"
            ) from error

    def score(self, part: int) -> PartDone:
        """Score the rows of a part and commit it. `sums` of the result are JSON values."""
        with self._reading:
            pieces = self._rows.read(*self._order.layout.bounds(part))
        scored = self._torch.submit(self._scored, pieces).result()
        sums = scored.sums.to_dict()
        ours = commit(self._store, part, encoded(self._output(pieces, scored), sums))
        return PartDone(part, sums if ours else read_footer(self._store, part, dict), self.open_work())

    def open_work(self) -> OpenWork:
        """Always zero: parts of a ranker take about a second, so parts in progress are not counted."""
        return OpenWork(0, 0, 0)

    def close(self) -> None:
        """Does nothing: a ranker leaves no files."""

    def _scored(self, pieces: list[Piece]) -> _Scored:
        assert self._scorer is not None
        table = self._order.table
        labels = {name: LabelSums.empty(self._order.judging) for name in table.labels}
        errors: list[str | None] = []
        found = []
        for piece in pieces:
            if piece.columns is None:
                found.append(np.full((piece.count, len(table.config.tasks)), np.nan, dtype=np.float32))
                errors += [piece.error] * piece.count
                continue
            columns = table.transformed(piece.columns)
            logits, wrong = self._scorer.logits(columns)
            found.append(_probabilities(logits))
            errors += wrong
            if labels:
                places = places_of(piece.columns.column(table.place) if table.place is not None else None, piece.first, piece.count)
                self._judge(labels, columns, places, logits)
        return _Scored(np.concatenate(found), errors, RankedSums.of(errors, labels))

    def _judge(
        self,
        labels: dict[str, LabelSums],
        columns: pa.RecordBatch,
        places: np.ndarray[Any, Any],
        logits: np.ndarray[Any, np.dtype[np.float32]],
    ) -> None:
        table = self._order.table
        slices = {name: coded(columns.column(name)) for name in table.slices}
        for at, name in enumerate(table.config.tasks):
            if name in labels:
                judged = JudgedRows.of(logits[:, at], numbers_of(columns.column(name)))
                labels[name].add(judged, slices, places)

    def _output(self, pieces: list[Piece], scored: _Scored) -> pa.Table:
        table = self._order.table
        probabilities = {f"probability_{name}": scored.probabilities[:, at] for at, name in enumerate(table.config.tasks)}
        arrays: dict[str, Any] = {"row": np.arange(pieces[0].first, pieces[0].first + len(scored.errors))}
        schema = self._rows.schema
        for name in table.keep:
            chunks = [pa.nulls(p.count, schema.field(name).type) if p.columns is None else p.columns.column(name) for p in pieces]
            arrays[output_name(name, {"row", "error", *probabilities})] = pa.chunked_array(chunks, type=schema.field(name).type)
        nothing = np.array([error is not None for error in scored.errors])
        arrays |= {name: pa.array(values, mask=nothing) for name, values in probabilities.items()}
        return pa.table(arrays | {"error": pa.array(scored.errors, type=pa.string())})


def _probabilities(logits: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Probabilities of logits, by torch's sigmoid."""
    import torch

    made: np.ndarray[Any, np.dtype[np.float32]] = torch.from_numpy(logits).sigmoid().numpy()
    return made
