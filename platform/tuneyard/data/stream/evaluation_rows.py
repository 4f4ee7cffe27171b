"""Rows for evaluation that are made while a task trains: those held out of a stream, or a data set of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic

from tuneyard.api import BadInput
from tuneyard.data.samples import Tally
from tuneyard.data.stream.rows import RowsT, Stream, StreamTally
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.stream.windows import Place


class EvaluationRows(Generic[RowsT]):
    """Rows of all splits, in their order. They are built when they are first read, or by `build`. A subclass reads a row in its shard."""

    HINT = "check the data"
    """The next step where no row is left."""

    def __init__(
        self,
        stream: Stream[RowsT],
        *,
        splits: int | None = None,
        own: bool = False,
        on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> None:
        """`splits`: rows of at least the first so many splits of the first epoch; None: of all. `own`: the stream is a data set for
        evaluation, with all of its rows; else the rows that are held out of it. `on_progress`: called with the splits that are made, and
        those of all.
        """
        self._stream = stream
        self._splits, self._own = splits, own
        self._on_progress = on_progress
        self._shards: list[RowsT] | None = None
        self._ends: list[int] = []

    @property
    def counted(self) -> int | None:
        """The number of rows, once they are built."""
        return None if self._shards is None else (self._ends or [0])[-1]

    @property
    def facts(self) -> ShardFacts:
        """Sums over the shards that are built."""
        tally = StreamTally()
        for number, shard in enumerate(self._shards or ()):
            tally.add(number, shard.facts)
        return tally.facts

    def __len__(self) -> int:
        self.build()
        return (self._ends or [0])[-1]

    def _found(self, number: int) -> tuple[RowsT, int]:
        """The shard of a row, and its number in it."""
        shards = self.build()
        index = bisect_right(self._ends, number)
        inside = number - (self._ends[index - 1] if index else 0)
        return shards[index], self._first(shards[index].facts) + inside

    def build(self) -> Sequence[RowsT]:
        """Make all rows, unless they are made. The processes of a machine share the work.

        Raises BadInput for unusable data, StorageError where they cannot be read or stored.
        """
        if self._shards is None:
            splits = [self._stream.splits[number] for number in self._chosen()]
            for done, split in enumerate(splits if self._splits is None else []):
                self._on_progress(done, len(splits))
                self._stream.build_unless_claimed(split)
            shards = [self._stream.shard(split) for split in splits]
            self._check(shards)
            self._ends = list(accumulate(self._rows(shard.facts) for shard in shards))
            self._shards = shards
            self._on_progress(len(splits), len(splits))
        return self._shards

    def _rows(self, facts: ShardFacts) -> int:
        return facts.rows if self._own else facts.held_out

    def _first(self, facts: ShardFacts) -> int:
        return 0 if self._own else facts.rows

    def _check(self, shards: Sequence[RowsT]) -> None:
        if not self._own:  # the bad rows are those of the stream itself
            return
        tally = Tally(self._stream.uri, self._stream.max_bad_fraction)
        for facts in (shard.facts for shard in shards):
            tally.good, tally.left_out = tally.good + facts.samples, tally.left_out + facts.left_out
            if facts.bad:
                tally.take(facts.bad, facts.bad_examples, facts.advice)
        tally.check()
        if not sum(shard.facts.rows for shard in shards):
            dropped = [example for shard in shards for example in shard.facts.dropped_examples]
            why = f": {sum(shard.facts.dropped for shard in shards)} were dropped, such as {dropped[0]}" if dropped else ""
            raise BadInput(f"{self._stream.uri}: no sample is left to evaluate on{why}", self.HINT)

    def _chosen(self) -> list[int]:
        count, place = len(self._stream.splits), Place(0, 0)
        if self._splits is None:
            return list(range(count))
        chosen: list[int] = []
        while len(chosen) < min(self._splits, count):
            chosen.extend(self._stream.windows.splits_at(place))
            place = self._stream.windows.after(place)
        return chosen
