"""Writes a table to flat arrays on disk, in one pass by projection. `flat_rows` maps them into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from tuneyard.api import BadInput
from tuneyard.data.tables import Table, TableReader
from tuneyard.ranking.batches import LABELS
from tuneyard.ranking.column_counts import ColumnCounts
from tuneyard.ranking.columns import holds_texts, lacking
from tuneyard.ranking.flattening import Flattening
from tuneyard.ranking.row_hashes import Hashes, row_hashes
from tuneyard.ranking.sliced_metrics import coded
from tuneyard.ranking.transforms import check_outputs, kinds_of

ABOUT, HASHES, VERSION = "about.json", "hashes.u8", 7
_READ_ROWS = 65_536


def write_flat(table: Table, flattening: Flattening, rows: int, folder: Path, on_rows: Callable[[int, int], None]) -> None:
    """Write the flat rows of the first `rows` of a table into a folder: arrays, a hash of each row, and `about.json`, which lists and
    describes the arrays.

    `on_rows(read, total)` reports progress. Raises BadInput like `batch_of`, with the row of a bad label; for a step whose output hides a
    column of the table; and if sampling leaves no row.
    """
    config, steps = flattening.config, flattening.steps
    reader = TableReader(table, flattening.columns, batch_rows=_READ_ROWS)
    check_outputs(table, steps, reader.schema)
    made = flattening.schema(reader.schema)
    texts = {feature.name: holds_texts(made.field(feature.name).type) for feature in config.sparse}
    writer, done = _Writer(folder, flattening, texts), 0
    for batch in reader:
        read = batch.slice(0, rows - done)
        columns, flat = flattening.flat(read, done)
        writer.add(columns, flat, flattening.hashes(read) if steps.scales else row_hashes(flat))
        done += read.num_rows
        on_rows(done, rows)
        if done >= rows:
            break
    if not writer.rows:
        raise BadInput(
            f"{table.uri}: sampling leaves none of {rows:,} rows", "raise the rate of sampling, or name another key: its column may be null"
        )
    inputs = kinds_of(reader.schema, steps.making(flattening.names).without_sampling)
    found = {"text_inputs": inputs, "lacking": lacking(table, flattening.columns)}
    (folder / ABOUT).write_text(json.dumps(writer.about | found))


class _Writer:
    """The arrays of a table, and counts of its columns."""

    def __init__(self, folder: Path, flattening: Flattening, texts: Mapping[str, bool]) -> None:
        config, slices = flattening.config, flattening.slices
        self._config, self._slices = config, slices
        kinds: dict[str, tuple[str, list[int]]] = {LABELS: ("float32", [len(config.tasks)])}
        if config.dense:
            kinds["dense"] = ("float32", [len(config.dense)])
        for feature in config.sparse:
            kinds |= {f"{feature.name}.ids": ("int64", []), f"{feature.name}.offsets": ("int64", [])}
        kinds |= {f"{column}.codes": ("int32", []) for column in slices}
        self._arrays = {name: _Array(folder, number, dtype, inner) for number, (name, (dtype, inner)) in enumerate(kinds.items())}
        for feature in config.sparse:
            self._arrays[f"{feature.name}.offsets"].add(np.zeros(1, np.int64))
        self._hashes = folder / HASHES
        self._values: dict[str, dict[str | None, int]] = {column: {} for column in slices}
        self._counts = ColumnCounts.of(config, texts)

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._counts.rows

    def add(self, columns: pa.RecordBatch, batch: Mapping[str, torch.Tensor], hashes: Hashes) -> None:
        """Add rows, as Arrow's columns and as tensors, with the hash of each."""
        for name in ("dense", LABELS):
            if name in batch:
                self._arrays[name].add(batch[name].numpy())
        for feature in self._config.sparse:
            self._add_ids(feature.name, batch)
        for column in self._slices:
            self._arrays[f"{column}.codes"].add(_codes(columns.column(column), column, self._values[column]))
        self._counts.add(batch, self._config)
        with self._hashes.open("ab") as file:
            file.write(hashes.data)

    def _add_ids(self, name: str, batch: Mapping[str, torch.Tensor]) -> None:
        ids, offsets = batch[f"{name}.ids"].numpy(), batch[f"{name}.offsets"].numpy()
        self._arrays[f"{name}.offsets"].add(offsets[1:] + self._arrays[f"{name}.ids"].length)
        self._arrays[f"{name}.ids"].add(ids)

    @property
    def about(self) -> dict[str, Any]:
        """Number of rows, positions of the arrays, values of slices, and the counts of columns."""
        return {
            "rows": self.rows,
            "arrays": {name: array.about for name, array in self._arrays.items()},
            "slices": {column: list(found) for column, found in self._values.items()},
            **self._counts.to_dict(),
        }


class _Array:
    """One array, written sequentially."""

    def __init__(self, folder: Path, number: int, dtype: str, inner: Sequence[int]) -> None:
        self.dtype, self.inner, self.length = dtype, list(inner), 0
        self.file = f"{number}.bin"
        self._path = folder / self.file

    def add(self, values: npt.NDArray[Any]) -> None:
        with self._path.open("ab") as file:  # not kept open: a wide table has more columns than a process may have files
            file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.length += len(values)

    @property
    def about(self) -> tuple[str, str, list[int]]:
        return self.file, self.dtype, [self.length, *self.inner]


def _codes(column: pa.Array, name: str, known: dict[str | None, int]) -> npt.NDArray[np.int32]:
    """The code of each row's value. New values are added to `known`."""
    if pa.types.is_nested(column.type):
        raise BadInput(f"slice column {name} holds lists", "name a column with one value in each row in slices")
    codes, values = coded(column)
    numbers = np.asarray([known.setdefault(value, len(known)) for value in values] or [0], dtype=np.int32)
    found: npt.NDArray[np.int32] = numbers[codes]
    return found
