"""Rows for evaluation of a streamed data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.data.stream.rows import Stream
from tuneyard.data.stream.shards import Shard
from tuneyard.data.stream.windows import Place
from tuneyard.data.token_batch import TokenBatch


class HeldOutRows:
    """Rows held out of the first splits of the first epoch, or of all splits in their order. They are built when they are first read."""

    def __init__(self, stream: Stream[Shard], splits: int | None, *, packed: bool = False) -> None:
        """`splits`: at least so many; None: all."""
        self._stream = stream
        self._packed = packed
        self._splits = splits
        self._found: list[tuple[Shard, int]] | None = None

    @property
    def counted(self) -> int | None:
        """The number of rows, once they are built."""
        return None if self._found is None else len(self._found)

    def __len__(self) -> int:
        return len(self._all())

    @property
    def column_names(self) -> list[str]:
        return ["input_ids", "labels", *(["position_ids"] if self._packed else []), "length"]

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> TokenBatch:
        """These rows, in this order."""
        return TokenBatch.of_parts([shard.row(row) for shard, row in map(self._all().__getitem__, numbers)])

    def _all(self) -> list[tuple[Shard, int]]:
        if self._found is None:
            splits = [self._stream.splits[number] for number in self._chosen()]
            for split in splits if self._splits is None else []:  # the ranks of a machine share the work
                self._stream.build_unless_claimed(split)
            shards = [self._stream.shard(split) for split in splits]
            self._found = [(shard, shard.facts.rows + row) for shard in shards for row in range(shard.facts.held_out)]
        return self._found

    def _chosen(self) -> list[int]:
        count, place = len(self._stream.splits), Place(0, 0)
        if self._splits is None:
            return list(range(count))
        chosen: list[int] = []
        while len(chosen) < min(self._splits, count):
            chosen.extend(self._stream.windows.splits_at(place))
            place = self._stream.windows.after(place)
        return chosen
