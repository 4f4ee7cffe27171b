"""Batches of a streamed table by position, for one process: the rows at a position, and the shards that hold them.

Footers give the rows of each split, so that a position is found without reading the rows before it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.api import BadInput
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.stream.rows import Announce, Stream, StreamTally
from tuneyard.data.stream.windows import Place
from tuneyard.ranking.batches import LABELS
from tuneyard.ranking.column_counts import ColumnCounts
from tuneyard.ranking.columns import lacking
from tuneyard.ranking.config import RankerConfig, SparseFeature
from tuneyard.ranking.flat_rows import FlatRows, lists_of
from tuneyard.ranking.stream.recipe import TableRecipe
from tuneyard.ranking.stream.shards import TableShard

Ints = npt.NDArray[np.int64]
Batch = dict[str, torch.Tensor]
_LESS_PATIENCE = 4.0
"""Divisor of the patience after each split that the service did not deliver. Without it, while the service's workers start, the first step
would wait the full time for each split of the first window.
"""


@dataclass(frozen=True)
class FirstWindow:
    """The rows of some splits, concatenated."""

    config: RankerConfig
    parts: Sequence[FlatRows]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def ids(self, feature: SparseFeature, numbers: Ints) -> Ints:
        """The ids of a feature in these rows, concatenated; row numbers ascend."""
        found, start = [np.zeros(0, np.int64)], 0
        for rows in self.parts:
            first, end = np.searchsorted(numbers, (start, start + len(rows)))
            found.append(rows.ids(feature, numbers[first:end] - start))
            start += len(rows)
        return np.concatenate(found)


class StreamedTable:
    """Rows by position. Positions continue over epochs."""

    def __init__(
        self,
        stream: Stream[TableShard],
        recipe: TableRecipe,
        order: PreparedOrder,
        announce: Announce = lambda _place, _waited: None,
    ) -> None:
        """`recipe`: that of the stream. `announce`: see `Announce`."""
        self.stream, self.order = stream, order
        self.config, self.texts, self.text_inputs = recipe.config, recipe.texts, recipe.text_inputs
        self.tally = StreamTally()
        self.counts = ColumnCounts.of(self.config, recipe.are_texts)
        """Counts of the splits that this process has read."""
        self._lacking = lacking(recipe.table, recipe.flattening.columns)
        self._identity, self._announce = recipe.table.identity, announce
        self._announced: Place | None = None
        self._open: OrderedDict[int, TableShard] = OrderedDict()
        self._first: FirstWindow | None = None
        self._leave_s = stream.leave_s

    def __len__(self) -> int:
        return self.epoch_rows

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch."""
        return self.order.epoch_rows

    @property
    def counted(self) -> FirstWindow:
        """Rows whose ids are counted before training: those of the first window of the first epoch, the same on every rank and in every
        attempt. Reads that window.
        """
        if self._first is None:
            self._tell(Place(0, 0))
            self._first = FirstWindow(self.config, [self._shard(split).rows for split in self.stream.windows.splits_at(Place(0, 0))])
        return self._first

    @property
    def ids_per_row(self) -> dict[str, float]:
        """Mean number of ids in a row of the first window, by sparse feature."""
        counts = ColumnCounts.of(self.config, {})
        for rows in self.counted.parts:
            counts.merge(rows.counts)
        return counts.ids_per_row

    def warnings(self) -> list[str]:
        """Warnings about the columns, from the rows that this process has read, a sentence each."""
        counted = self.counts.rows
        rows = "all rows" if counted >= self.epoch_rows else f"the {counted:,} rows that were read"
        return [*self._lacking, *(self.counts.warnings(self.config, rows) if counted else ())]

    def batch(self, numbers: Sequence[int] | Ints) -> Batch:
        """The rows at these positions, in their order, as from `FlatRows.batch`. Raises BadInput for unusable data, StorageError if data
        cannot be read or kept.
        """
        wanted = np.asarray(numbers, dtype=np.int64)
        self._tell(self.order.place_of(int(wanted[0])))
        splits, rows = self.order.split_of(self.order.at_each(wanted))
        by_split = np.argsort(splits, kind="stable")
        numbers, firsts = np.unique(splits[by_split], return_index=True)
        ends = [*firsts[1:].tolist(), len(by_split)]
        parts = [
            self._shard(number).rows.batch(rows[by_split[first:end]])
            for number, first, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        back = np.empty_like(by_split)
        back[by_split] = np.arange(len(by_split))
        return in_order(parts, back, self.config)

    @property
    def mark(self) -> str:
        """Nothing: the cursor compares the identity of the table."""
        return ""

    def cursor(self, _position: int) -> dict[str, Any]:
        """A cursor for `place`, also in another process or on another machine: a position is enough to continue."""
        return {"table": self._identity, "order": self.order.identity}

    def place(self, cursor: Mapping[str, Any]) -> None:
        """Continue from a cursor. Raises BadInput if it was made on other data."""
        if dict(cursor) != self.cursor(0):
            raise BadInput(
                f"{self.stream.uri} has changed since the checkpoint was written: its rows would be others",
                "put the table back as it was, or start again without the checkpoint",
            )

    def _tell(self, place: Place) -> None:
        if place != self._announced:
            self._announced = place
            self._announce(place, self.tally.waited_s)

    def _shard(self, number: int) -> TableShard:
        known = self._open.get(number)
        if known is not None:
            self._open.move_to_end(number)
            return known
        shard = self._read(number)
        self._open[number] = shard
        if len(self._open) > 2 * self.stream.windows.most:
            self._open.popitem(last=False)
        if number not in self.tally.splits:
            self.counts.merge(shard.rows.counts)
            self.tally.add(number, shard.facts)
        return shard

    def _read(self, number: int) -> TableShard:
        """The shard of a split. The service gets some time to make it, and less time after each split that it did not deliver."""
        began = time.perf_counter()
        shard = replace(self.stream, leave_s=self._leave_s).shard(self.stream.splits[number])
        took_s = time.perf_counter() - began
        self._leave_s = self.stream.leave_s if took_s < self._leave_s else self._leave_s / _LESS_PATIENCE
        self.tally.waited_s += took_s
        if self._announced is not None:
            self._announce(self._announced, self.tally.waited_s)
        return shard


def in_order(parts: Sequence[Mapping[str, torch.Tensor]], order: Ints, config: RankerConfig) -> Batch:
    """One batch whose row i is row `order[i]` of the concatenated `parts`."""
    places = torch.from_numpy(order)
    made = {name: torch.cat([part[name] for part in parts])[places] for name in ("dense", LABELS) if name in parts[0]}
    each = torch.arange(len(order) + 1)
    for feature in config.sparse:
        name, ends = f"{feature.name}.ids", f"{feature.name}.offsets"
        ids = torch.cat([part[name] for part in parts])
        lengths = np.concatenate([np.diff(part[ends].numpy()) for part in parts])
        if len(ids) == len(order) and (lengths == 1).all():
            made[name], made[ends] = ids[places], each
            continue
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        found, borders = lists_of(ids.numpy(), offsets, order, 0)
        made[name], made[ends] = torch.from_numpy(found), torch.from_numpy(borders)
    return made
