"""The rows of a table as flat arrays on disk, mapped into memory: any rows become a batch with a few look-ups per column.

A table is read once, by projection, and kept in the user's cache under a hash of everything that it depends on. `FlatRows.batch` takes any
row numbers, so that rows come in the deterministic order of every training, on any number of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
import xxhash

from tuneyard.api import BadInput
from tuneyard.data.cache import cache_root, cached_folder
from tuneyard.data.content import Content
from tuneyard.data.tables import Pipeline, open_table
from tuneyard.data.tables.transforms import Sampling
from tuneyard.ranking.batches import LABELS
from tuneyard.ranking.column_counts import ColumnCounts
from tuneyard.ranking.config import RankerConfig, SparseFeature
from tuneyard.ranking.flat_writer import ABOUT, HASHES, VERSION, write_flat
from tuneyard.ranking.flattening import Flattening
from tuneyard.ranking.sliced_metrics import Coded

Ints = npt.NDArray[np.int64]
_DRAWN = 1 << 32
"""First seed of drawn negatives. A JobSpec's seeds of sampling are usually lower, so that the two draws are independent."""


@dataclass(frozen=True)
class FlatRows:
    """Rows of a table. `slices`: by column, the value of each code, None for null. `about`: facts about the table's columns."""

    config: RankerConfig
    rows: int
    arrays: Mapping[str, npt.NDArray[Any]]
    hashes: npt.NDArray[np.uint64]
    slices: Mapping[str, Sequence[str | None]]
    about: Mapping[str, Any]
    chosen: Ints | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.rows if self.chosen is None else len(self.chosen)

    def select(self, chosen: Ints) -> FlatRows:
        """Some rows, renumbered from 0."""
        return replace(self, chosen=chosen if self.chosen is None else self.chosen[chosen])

    def with_negatives(self, rate: float, seed: int) -> FlatRows:
        """The rows with label 1, and a share `rate` of those with label 0, drawn by their numbers: equal rows are drawn independently."""
        numbers = np.arange(self.rows) if self.chosen is None else self.chosen
        drawn = Sampling(key="number", rate=rate, seed=_DRAWN + seed).mask(pa.array(numbers))
        return replace(self, chosen=numbers[drawn | (self.arrays[LABELS][numbers, 0] == 1)])

    def content(self) -> Content:
        """What the rows are, with their labels."""
        numbers = slice(None) if self.chosen is None else self.chosen
        hashes, labels = self.hashes[numbers], np.ascontiguousarray(self.arrays[LABELS][numbers], dtype=np.float32)
        odd = np.arange(1, 2 * labels.shape[1], 2, dtype=np.uint64)
        marks = (labels.view(np.uint32).astype(np.uint64) * odd).sum(1, dtype=np.uint64)
        return Content(hashes, hashes + marks, {"labels": xxhash.xxh3_128_hexdigest(labels.tobytes())}, read=self.rows)

    def batch(self, numbers: Sequence[int] | Ints) -> dict[str, torch.Tensor]:
        """The rows with these numbers, as from `batches.batch_of`. Of a sequence, only the ids that count."""
        rows = np.asarray(numbers, dtype=np.int64)
        if self.chosen is not None:
            rows = self.chosen[rows]
        made = {name: torch.from_numpy(self.arrays[name][rows]) for name in ("dense", LABELS) if name in self.arrays}
        each = torch.arange(len(rows) + 1)
        for feature in self.config.sparse:
            ids = self.arrays[f"{feature.name}.ids"]
            if self._has_one_id(feature.name):
                own = torch.from_numpy(ids[rows].astype(np.int64, copy=False))
                made[f"{feature.name}.ids"], made[f"{feature.name}.offsets"] = own, each
                continue
            found, ends = lists_of(ids, self.arrays[f"{feature.name}.offsets"], rows, feature.length)
            made[f"{feature.name}.ids"], made[f"{feature.name}.offsets"] = torch.from_numpy(found), torch.from_numpy(ends)
        return made

    def ids(self, feature: SparseFeature, numbers: Ints) -> Ints:
        """The ids of a feature in these rows, concatenated; of a sequence, only the ids that count."""
        rows = numbers if self.chosen is None else self.chosen[numbers]
        ids = self.arrays[f"{feature.name}.ids"]
        if self._has_one_id(feature.name):
            return ids[rows].astype(np.int64, copy=False)
        return lists_of(ids, self.arrays[f"{feature.name}.offsets"], rows, feature.length)[0]

    def _has_one_id(self, name: str) -> bool:
        """Whether each row has exactly one id of the feature."""
        return bool(self.about["missing"][name] == 0 and self.about["ids"][name] == self.rows)

    def coded(self, column: str, numbers: Sequence[int] | Ints) -> Coded:
        """The values of a slice column in these rows."""
        rows = np.asarray(numbers, dtype=np.int64)
        return Coded(self.arrays[f"{column}.codes"][rows if self.chosen is None else self.chosen[rows]], self.slices[column])

    @property
    def counted(self) -> FlatRows:
        """Rows whose ids are counted before training: all of them."""
        return self

    @property
    def counts(self) -> ColumnCounts:
        """Counts of all rows."""
        return ColumnCounts.from_dict(self.about, self.rows)

    @property
    def ids_per_row(self) -> dict[str, float]:
        """Mean number of ids in a row of all rows, by sparse feature."""
        return self.counts.ids_per_row

    @property
    def texts(self) -> dict[str, bool]:
        """Whether the ids of each sparse feature are hashes of texts; features without any id are left out."""
        return {name: texts for name, texts in self.about["texts"].items() if self.about["ids"][name]}

    @property
    def text_inputs(self) -> dict[str, bool]:
        """Whether each column that the transforms read holds texts."""
        return dict(self.about["text_inputs"])

    def warnings(self) -> list[str]:
        """Warnings about the columns, a sentence each."""
        return [*self.about["lacking"], *self.counts.warnings(self.config)]


def lists_of(values: npt.NDArray[Any], offsets: Ints, rows: Ints, length: int) -> tuple[Ints, Ints]:
    """Ids of these rows, concatenated, and the offsets of each row; with a `length`, only its last ids."""
    firsts, ends = offsets[rows], offsets[rows + 1]
    if length:
        firsts = np.maximum(firsts, ends - length)
    found = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(ends - firsts, out=found[1:])
    places = np.repeat(firsts - found[:-1], ends - firsts) + np.arange(found[-1])
    return values[places].astype(np.int64, copy=False), found


def stored_rows(
    uri: str,
    config: RankerConfig,
    *,
    steps: Pipeline | None = None,
    slices: Sequence[str] = (),
    limit: int | None = None,
    cache_dir: str | Path | None = None,
    on_rows: Callable[[int, int], None] = lambda _done, _of: None,
) -> FlatRows:
    """The rows of the Parquet table at `uri`, transformed. Several processes may call it at once: one reads, the others wait.

    `steps`: the config's transforms with sampling included, for training rows; by default without sampling. `on_rows(read, total)` reports
    progress.

    Raises BadInput like `open_table` and `batch_of`, with the row of a bad label, and for a table without rows; StorageError if the source
    is unreachable or the disk is full.
    """
    table = open_table(uri)
    rows = min(table.rows, limit or table.rows)
    if not rows:
        raise BadInput(f"{uri}: the table has no row", "name a table with rows; a day without clicks is left out")
    flattening = Flattening(config, config.transforms if steps is None else steps, tuple(slices))
    key = {"code": VERSION, "files": [file.file.identity() for file in table.files], **flattening.about, "rows": rows}
    root = cache_root(cache_dir) / "ranking-rows"
    folder, _ = cached_folder(root, key, lambda into: write_flat(table, flattening, rows, into, on_rows))
    about = json.loads((folder / ABOUT).read_text())
    arrays = {name: _mapped(folder / file, dtype, shape) for name, (file, dtype, shape) in about["arrays"].items()}
    rows = about["rows"]
    hashes = _mapped(folder / HASHES, "uint64", [rows])
    return FlatRows(config, rows, arrays, hashes, about["slices"], about)


def _mapped(path: Path, dtype: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    if not all(shape):
        return np.zeros(shape, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=tuple(shape)))  # look-ups in a memmap itself run through Python
