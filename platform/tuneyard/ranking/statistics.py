"""Mean and variance of the columns that a ranker's transforms normalize, from the rows that it is trained on.

They are computed before any row is made, once for a table, and are a part of the ranker from then on. Sums are exact, so that every
attempt on the same table finds the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.cache import cache_root, cached_folder
from tuneyard.data.holdout import held_out_items
from tuneyard.data.tables import Pipeline, Table, TableReader, open_table
from tuneyard.data.tables.transforms import Statistic, statistics, with_statistics
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.flattening import Flattening

SAMPLED_ROWS = 1_000_000
"""Rows of a streamed table that are measured, about; all rows of a smaller one. The error of a mean is a thousandth of the deviation."""
_FILE, _VERSION = "statistics.json", 1


@dataclass(frozen=True)
class Measured:
    """`steps` with all statistics. `rows`: those that were read, of the `of` rows of the table."""

    steps: Pipeline
    found: tuple[Statistic, ...]
    rows: int
    of: int

    @property
    def about(self) -> dict[str, dict[str, Any]]:
        """For the report, by the output of each step."""
        return {
            self.steps.normalize_at(each.step).output: {name: value for name, value in asdict(each).items() if name != "step"}
            | {"rows": self.rows, "of": self.of}
            for each in self.found
        }


def measured(
    uri: str,
    config: RankerConfig,
    steps: Pipeline,
    *,
    limit: int | None = None,
    held_out: tuple[float, int] = (0.0, 0),
    sampled: bool = False,
    cache_dir: str | Path | None = None,
    on_rows: Callable[[int, int], None] = lambda _done, _of: None,
) -> Measured:
    """The transforms of a ranker with the statistics of its training rows, in the first `limit` rows of the Parquet table at `uri`.

    `steps`: with sampling. `held_out`: the share of rows that are held out by content, and the seed; they do not count. `sampled`: read
    row groups at equal distances, of `SAMPLED_ROWS` rows together, for a table that is streamed. Only the columns that are needed are read.
    `on_rows(read, total)` reports progress.

    Raises BadInput like `stored_rows`, and for a column without values, or whose values are all equal.
    """
    table = open_table(uri)
    rows = _Rows.of(table, min(table.rows, limit or table.rows), SAMPLED_ROWS if sampled else None, on_rows)
    about = Flattening(config, steps).about if held_out[0] else {"transforms": steps.model_dump_json()}
    files = [file.file.identity() for file in table.files]
    key = {"code": _VERSION, "files": files, **about, "rows": rows.total, "groups": len(rows.groups), "held_out": held_out}

    def measure(folder: Path) -> None:
        kept = _kept(rows, config, steps, *held_out) if held_out[0] else None
        try:
            found = statistics(steps, rows.batches, kept)
        except BadInput as error:
            raise BadInput(f"{uri}: {error.cause}", error.next_step) from error
        (folder / _FILE).write_text(json.dumps([asdict(each) for each in found]))

    folder, _ = cached_folder(cache_root(cache_dir) / "ranking-statistics", key, measure)
    found = tuple(Statistic(**each) for each in json.loads((folder / _FILE).read_text()))
    return Measured(with_statistics(steps, found), found, rows.rows, rows.total)


@dataclass(frozen=True)
class _Rows:
    """Row groups of a table, as (file, row group), with the number of rows to read of each, of the first `total` rows."""

    table: Table
    groups: tuple[tuple[tuple[int, int], int], ...]
    total: int
    on_rows: Callable[[int, int], None]

    @classmethod
    def of(cls, table: Table, wanted: int, most: int | None, on_rows: Callable[[int, int], None]) -> _Rows:
        """Row groups of the first `wanted` rows. `most`: about so many rows, of groups at equal distances; None: all."""
        groups, first = [], 0
        for file, group in table.row_groups:
            rows = table.files[file].group_rows[group]
            if (taken := min(rows, wanted - first)) > 0:
                groups.append(((file, group), taken))
            first += rows
        distance = 1 if most is None else max(1, wanted // most)
        return cls(table, tuple(groups[::distance]), wanted, on_rows)

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.groups)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows with these columns, a batch for each row group."""
        done, reader = 0, TableReader(self.table, columns, row_groups=[group for group, _ in self.groups])
        for (_, rows), batch in zip(self.groups, reader, strict=True):
            yield batch.slice(0, rows)
            self.on_rows(done := done + rows, self.rows)


def _kept(rows: _Rows, config: RankerConfig, steps: Pipeline, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Of the rows that sampling leaves, those that are not held out."""
    flattening = Flattening(config, steps)
    found = [flattening.hashes(read) for read in rows.batches(flattening.columns)]
    kept: npt.NDArray[np.bool_] = ~held_out_items(np.concatenate(found) if found else np.zeros(0, np.uint64), fraction, seed)
    return kept
