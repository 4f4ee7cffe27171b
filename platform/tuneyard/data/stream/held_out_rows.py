"""Rows for evaluation of a streamed data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.data.stream.rows import Stream
from tuneyard.data.stream.shards import Shard
from tuneyard.data.stream.windows import Place
from tuneyard.data.token_batch import TokenBatch


class HeldOutRows:
    """Rows held out of the first splits of the first epoch. They are built when they are first read."""

    def __init__(self, stream: Stream[Shard], splits: int, *, packed: bool = False) -> None:
        self._stream = stream
        self._packed = packed
        self._splits = splits
        self._found: list[tuple[Shard, int]] | None = None

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
            place = Place(0, 0)
            chosen: list[int] = []
            while len(chosen) < min(self._splits, len(self._stream.splits)):
                chosen.extend(self._stream.windows.splits_at(place))
                place = self._stream.windows.after(place)
            shards = [self._stream.shard(self._stream.splits[number]) for number in chosen]
            self._found = [(shard, shard.facts.rows + row) for shard in shards for row in range(shard.facts.held_out)]
        return self._found
