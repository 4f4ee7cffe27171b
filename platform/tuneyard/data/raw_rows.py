"""Rows with their own columns, for training by a program: memory-mapped or streamed, held out by content, in a pure order.

There is no tokenizer, and columns have no roles. A row is a dict from column to value as Arrow gives it (numbers, texts, bytes, lists,
dicts).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.api import BadInput, Source, TrainData
from tuneyard.data.cache import cache_root, cached_folder
from tuneyard.data.content import Content
from tuneyard.data.dataset import BAD_ROWS, open_dataset
from tuneyard.data.holdout import held_out_items
from tuneyard.data.preparation import Prepared, located_source
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.report import DataReport
from tuneyard.data.row_streaming import FORMAT, WHY, stream_rows
from tuneyard.data.sources import Located
from tuneyard.data.stream.row_recipe import content_hash
from tuneyard.data.stream.windows import Windows
from tuneyard.tracking import Emit, Stage, silent

_HASHES = "hashes.npy"


def prepare_rows(
    spec: TrainData,
    *,
    seed: int,
    cache_dir: str | Path | None = None,
    service: Path | None = None,
    emit: Emit = silent,
    task: str = "",
) -> Prepared:
    """The rows of `spec`, with `from` resolved to `source`: written to the cache whole, or streamed where the task asks for it.

    `service`: as of `tuneyard.data.prepare`.
    Several processes may call this function at once: one reads, the others wait. Rows of `validationFraction` are chosen by their content,
    so that a row and its duplicates are on the same side. Raises BadInput (no data, too many bad rows, no row left), StorageError (source
    not reachable, disk full).
    """
    if spec.asks_for_stream:
        return stream_rows(spec, seed=seed, cache_dir=cache_dir, service=service, emit=emit, task=task)
    emit(Stage(task=task, name="reading rows"))
    located = located_source(spec)
    rows = _opened(spec, spec, cache_dir)
    entry = Path(rows.cache_files[0]["filename"])
    content = Content.of_entry(entry.parent, {}, read=len(rows), rows=entry.name)
    held_out = None
    if spec.validation is not None:
        held_out = _opened(spec.validation, spec, cache_dir)
    elif spec.validation_fraction:
        aside = held_out_items(_hashes(rows, located, spec, cache_dir), spec.validation_fraction, seed)
        if aside.all():
            raise BadInput(f"{located.uri}: all rows are equal, so that none can be held out", "leave data.validationFraction out")
        rows, held_out = rows.select(np.flatnonzero(~aside)), rows.select(np.flatnonzero(aside))
    report = DataReport(
        source=located.uri,
        format=FORMAT,
        why=WHY,
        files=len(located.files),
        samples=len(rows) + (len(held_out) if held_out is not None and spec.validation is None else 0),
        rows=len(rows),
        validation_rows=len(held_out) if held_out is not None else 0,
        max_length=0,
        packed=False,
        notes=[*located.notes],
        **json.loads(entry.with_name(BAD_ROWS).read_text()),
    )
    order = PreparedOrder(Windows.over([located.size_bytes], seed, shuffle=spec.shuffle), (len(rows),))
    return Prepared(rows, held_out, report, False, order, content=content)


def _opened(source: Source, spec: TrainData, cache_dir: str | Path | None) -> Any:
    return open_dataset(
        source.source or "",
        split=source.split,
        file_type=source.file_type,
        sheet=source.sheet,
        limit=source.limit,
        max_bad_fraction=spec.max_bad_fraction,
        cache_dir=cache_dir,
    )


def _hashes(rows: Any, located: Located, spec: TrainData, cache_dir: str | Path | None) -> npt.NDArray[np.uint64]:
    """A hash of the content of each row, computed once."""
    key = {
        "code": 2,
        "files": [[file.reader, file.identity()] for file in located.files],
        "limit": spec.limit,
        "bad": spec.max_bad_fraction,
    }

    def build(folder: Path) -> None:
        np.save(folder / _HASHES, np.fromiter(map(content_hash, rows), dtype=np.uint64, count=len(rows)))

    entry, _ = cached_folder(cache_root(cache_dir) / "row-hashes", key, build)
    hashes: npt.NDArray[np.uint64] = np.load(entry / _HASHES)
    return hashes
