"""The conversion of a split of a table to flat rows: the same rows on every machine, at any time, in any process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
import xxhash

from tuneyard.api import BadInput
from tuneyard.data.access import reading
from tuneyard.data.file_types import DataFile
from tuneyard.data.shard_files import keep_newest
from tuneyard.data.shared.place import ShardTier, Wanted, fetched
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.stream.splits import Split
from tuneyard.data.tables import Table, TableReader
from tuneyard.data.tables.decoding import content_of
from tuneyard.ranking.batches import LABELS
from tuneyard.ranking.column_counts import ColumnCounts
from tuneyard.ranking.columns import holds_texts
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.flattening import Flattening
from tuneyard.ranking.stream.shards import Arrays, TableShard, open_table_shard, write_table_shard
from tuneyard.ranking.transforms import check_outputs, kinds_of

PREFIX = "table-"
"""Prefix of the files of shards, which share their folder with those of texts."""
_VERSION = 1


@dataclass(frozen=True)
class TableRecipe:
    """Everything that rows depend on. `firsts`: for each split, the number of its first row, for errors; `kept_bytes`: of shards of tables
    that stay on a disk.
    """

    table: Table
    flattening: Flattening
    firsts: tuple[int, ...]
    kept_bytes: int

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file.file for file in self.table.files)

    @property
    def config(self) -> RankerConfig:
        return self.flattening.config

    @cached_property
    def key(self) -> str:
        """A hash of everything except the files."""
        return sha256(json.dumps([_VERSION, self.flattening.about]).encode()).hexdigest()

    @cached_property
    def stream_key(self) -> str:
        """A hash of settings and files."""
        files = [f"{file.uri} {file.mark} {file.size_bytes}" for file in self.files]
        return sha256("\n".join([self.key, *files]).encode()).hexdigest()[:32]

    @cached_property
    def texts(self) -> dict[str, bool]:
        """Whether the ids of each sparse feature are texts, by the type of its column; columns of nulls are left out."""
        made = self.flattening.schema(self._schema)
        types = {feature.name: made.field(feature.name).type for feature in self.config.sparse}
        return {name: holds_texts(kind) for name, kind in types.items() if not pa.types.is_null(kind)}

    @cached_property
    def text_inputs(self) -> dict[str, bool]:
        """Whether each column that the transforms read holds texts."""
        return kinds_of(self._schema, self.flattening.steps.making(self.flattening.names))

    def check(self) -> None:
        """Raises BadInput for transforms that do not fit the columns of the table, or that hide one of them."""
        check_outputs(self.table, self.flattening.steps, self._schema)
        self.flattening.schema(self._schema)

    @cached_property
    def are_texts(self) -> dict[str, bool]:
        """`texts` of every sparse feature."""
        return {feature.name: self.texts.get(feature.name, False) for feature in self.config.sparse}

    def mark(self, split: Split) -> str:
        """A name for the rows of a split, without reading it: from the metadata of its files in the file system or store."""
        parts = [self.key]
        for piece in split.pieces:
            file = self.table.files[piece.file].file
            parts.append(f"{file.uri} {file.mark} {file.size_bytes} {piece.start} {piece.end}")
        return PREFIX + sha256("\n".join(parts).encode()).hexdigest()[:32]

    def build(self, split: Split, folder: Path, shared: ShardTier | None = None) -> Path:
        """The shard of a split in `folder`: found there, fetched from `shared`, or built. Older shards are removed to stay within
        `kept_bytes`.

        Raises BadInput for a file that has changed since it was listed, a damaged row group, or rows that `batch_of` refuses; StorageError.
        """
        path = folder / f"{self.mark(split)}.shard"
        if path.exists():
            return path
        wanted = Wanted(self._content(split) if shared is not None else "", path, path.stem)
        if not fetched(shared, wanted, self._why_not):
            began = time.monotonic()
            seconds = {"decoding": 0.0, "packing": 0.0}
            arrays, counts = self._arrays(split, seconds)
            facts = ShardFacts(rows=counts.rows, samples=counts.rows, source_bytes=split.size_bytes, seconds=seconds)
            write_table_shard(path, arrays, counts, facts)
            if shared is not None:
                shared.store(wanted, time.monotonic() - began)
        self.trim(path)
        return path

    def trim(self, made: Path) -> None:
        """Remove the oldest shards of tables beyond `kept_bytes`."""
        keep_newest(made.parent, PREFIX, self.kept_bytes)

    def _content(self, split: Split) -> str:
        """A hash of all that the rows of a split depend on, on any machine: of the columns of a local file that are read, and of the
        address and version of a remote one.
        """
        digest = xxhash.xxh3_128(f"{self.key} {self._schema}".encode())
        for piece in split.pieces:
            file = self.table.files[piece.file]
            groups = range(piece.start, piece.end)
            if not file.file.is_local:
                digest.update(f"{file.uri} {file.file.mark} {file.file.size_bytes} {groups}".encode())
                continue
            for block in content_of(file, groups, self.flattening.columns):
                digest.update(block)
        return digest.hexdigest()

    def _why_not(self, path: Path) -> str:
        """Why the file at `path` is no shard of this table, or an empty text."""
        try:
            self.open(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"it is no shard of a table: {error}"
        return ""

    def open(self, path: Path) -> TableShard:
        return open_table_shard(path, self.config)

    def begin_worker(self) -> None:
        """Set up a fork that only builds shards: one thread. Torch could wait for threads that the fork does not have."""
        torch.set_num_threads(1)

    def _arrays(self, split: Split, seconds: dict[str, float]) -> tuple[Arrays, ColumnCounts]:
        """`seconds`: by kind of work; updated in place."""
        counts = ColumnCounts.of(self.config, self.are_texts)
        batches = list[Mapping[str, torch.Tensor]]()
        began = time.perf_counter()
        for place, read in self._row_groups(split):
            seconds["decoding"] += time.perf_counter() - began
            began = time.perf_counter()
            try:
                _, batch = self.flattening.flat(read, self.firsts[split.number] + counts.rows)
            except BadInput as error:
                raise BadInput(f"{place}: {error.cause}", error.next_step) from error
            counts.add(batch, self.config)
            batches.append(batch)
            seconds["packing"] += time.perf_counter() - began
            began = time.perf_counter()
        return _joined(batches, self.config), counts

    def _row_groups(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each row group, with its name."""
        units = [(piece.file, group) for piece in split.pieces for group in range(piece.start, piece.end)]
        for file in {file for file, _ in units}:
            with reading(self.table.files[file].uri):
                self.table.files[file].file.check_unchanged()
        for (file, group), rows in zip(units, TableReader(self.table, self.flattening.columns, row_groups=units), strict=True):
            yield f"{self.table.files[file].uri}, row group {group}", rows

    @cached_property
    def _schema(self) -> pa.Schema:
        return TableReader(self.table, self.flattening.columns).schema


def _joined(batches: list[Mapping[str, torch.Tensor]], config: RankerConfig) -> Arrays:
    """The arrays of `FlatRows`. A feature with one id per row has no offsets."""
    arrays = {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in ("dense", LABELS) if name in batches[0]}
    rows = len(arrays[LABELS])
    for feature in config.sparse:
        name = f"{feature.name}.ids"
        arrays[name] = np.concatenate([batch[name].numpy() for batch in batches])
        lengths = np.concatenate([np.diff(batch[f"{feature.name}.offsets"].numpy()) for batch in batches])
        if len(arrays[name]) != rows or (lengths != 1).any():
            arrays[f"{feature.name}.offsets"] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return arrays
