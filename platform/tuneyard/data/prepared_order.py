"""The order of rows that are all there: as a stream would read them, with the counts of all splits known. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from tuneyard.data.stream.windows import Place, Windows

_KEPT_EPOCHS = 2


@dataclass(frozen=True)
class _Window:
    place: Place
    splits: Sequence[int]
    rows: Sequence[int]
    """Of each of `splits`."""


@dataclass(frozen=True)
class PreparedOrder:
    """Rows lie split after split, `rows[i]` of them from split i. The same row stands at a position as in a stream over the same splits."""

    windows: Windows
    rows: tuple[int, ...]
    _epochs: dict[int, tuple[list[int], list[_Window]]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""
        return sum(self.rows)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(self.rows, initial=0))

    def at(self, position: int) -> int:
        """The index of the row at a position that counts on over epochs."""
        epoch, inside = divmod(position, self.epoch_rows)
        starts, windows = self._windows_of(epoch)
        index = bisect_right(starts, inside) - 1
        window = windows[index]
        which, row = self.windows.row(window.place, window.rows, inside - starts[index])
        return self._starts[window.splits[which]] + row

    def _windows_of(self, epoch: int) -> tuple[list[int], list[_Window]]:
        """Where each window of an epoch begins, and the windows."""
        if epoch not in self._epochs:
            if len(self._epochs) >= _KEPT_EPOCHS:
                self._epochs.pop(next(iter(self._epochs)))
            places = [Place(epoch, number) for number in range(self.windows.count(epoch))]
            splits = [self.windows.splits_at(place) for place in places]
            windows = [_Window(place, inside, [self.rows[split] for split in inside]) for place, inside in zip(places, splits, strict=True)]
            self._epochs[epoch] = list(accumulate((sum(window.rows) for window in windows[:-1]), initial=0)), windows
        return self._epochs[epoch]
