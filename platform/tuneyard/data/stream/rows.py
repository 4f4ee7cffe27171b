"""The rows of a streamed data set by position, for one process: find the window, get its shards, find the row in its shard.

The process waits for a missing shard while another process builds it (its lock dies with it), and otherwise builds the shard itself. Data
workers therefore make reads faster, but no read depends on them.
"""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from os.path import commonpath, dirname, relpath
from pathlib import Path
from typing import Any, Generic, TypeVar

from tuneyard.api import BadInput, StorageError
from tuneyard.data.samples import EARLY_CHECK_ROWS, Tally
from tuneyard.data.shared.courier import Courier
from tuneyard.data.stream.claims import Claims
from tuneyard.data.stream.counted_window import CountedWindow
from tuneyard.data.stream.shard_maker import ShardMaker
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.stream.split_recipe import HasFacts
from tuneyard.data.stream.splits import Split
from tuneyard.data.stream.windows import WINDOW, Place, Windows

_POLL_S = 0.005
_TRIES = 8
_PATIENCE_S = 60.0
"""After this long in another process, which may hang, a shard is built a second time."""
_RESTORE = "restore the data and their settings, or start again in another output"
_OPEN_SHARDS = 2 * WINDOW
_KEPT_WINDOWS = 8192
"""Windows kept in memory: rows may be read again, and a tiny data set may have one window per row."""
_SUMS = (
    *("rows", "held_out", "tokens", "loss_tokens", "samples", "bad", "left_out", "truncated", "dropped", "muted"),
    *("cut_answers", "alike"),
    "source_bytes",
)


ShardT = TypeVar("ShardT")
RowsT = TypeVar("RowsT", bound=HasFacts)
Announce = Callable[[Place, float], None]
"""Called with the window that is read, and the seconds waited for shards so far."""


@dataclass(frozen=True)
class Stream(Generic[ShardT]):
    """The shared description of a streamed data set for all processes that read or build it."""

    uri: str
    splits: tuple[Split, ...]
    recipe: ShardMaker[ShardT]
    windows: Windows
    folder: Path
    """The folder of shards."""
    claims: Claims
    max_bad_fraction: float
    leave_s: float = 0.0
    """An unclaimed split is left to data workers for this long before this process builds it."""
    shared: Courier | None = None
    """The shards that jobs share, on the machine that opened the stream."""

    def path_of(self, split: Split) -> Path:
        """The path of the shard of a split, whether or not it exists."""
        return self.folder / f"{self.recipe.mark(split)}.shard"

    def build(self, split: Split) -> Path:
        """The path of the shard of a split, once this or another process has built it. Raises BadInput, StorageError."""
        path = self.path_of(split)
        began = time.monotonic()
        while not path.exists():
            waited_s = time.monotonic() - began
            mine = (waited_s >= self.leave_s or split.number < 0) and self.claims.take(split.number)
            if mine or waited_s > _PATIENCE_S:
                try:
                    return self.recipe.build(split, self.folder, self.shared)
                finally:
                    if mine:
                        self.claims.give_back(split.number)
            time.sleep(_POLL_S)
        return path

    def build_unless_claimed(self, split: Split) -> None:
        """Build the shard of a split, unless it is there or another process builds it now. Raises as `build`."""
        if self.claims.take(split.number):
            try:
                self.recipe.build(split, self.folder, self.shared)
            finally:
                self.claims.give_back(split.number)

    def shard(self, split: Split) -> ShardT:
        """The open shard of a split. A damaged shard, or one removed to make room, is built again. Raises as `build`."""
        for _ in range(_TRIES):
            path = self.build(split)
            try:
                shard = self.recipe.open(path)
            except FileNotFoundError:
                continue
            except ValueError:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise _unusable(path, "be removed, and is damaged", error) from error
                continue
            except OSError as error:
                raise _unusable(path, "be read", error) from error
            with contextlib.suppress(OSError):
                os.utime(path)
            return shard
        cause = f"shards of training rows in {self.folder} are damaged or missing after each write"
        raise StorageError(cause, "check the disk and other programs that write there, or set TUNEYARD_CACHE to another disk")


def _unusable(path: Path, what: str, error: OSError) -> StorageError:
    cause = f"{path}, a shard of training rows, cannot {what}: {error.strerror or error}"
    return StorageError(cause, "ask its owner to remove it or to give you access, or set TUNEYARD_CACHE to your own folder")


@dataclass
class StreamTally:
    """Sums over all shards read so far. Each split counts once."""

    facts: ShardFacts = field(default_factory=ShardFacts)
    splits: set[int] = field(default_factory=set)
    waited_s: float = 0.0
    """Seconds that this process spent waiting for shards, or building them."""

    def add(self, split: int, facts: ShardFacts) -> None:
        if split in self.splits:
            return
        self.splits.add(split)
        total = self.facts
        for name in _SUMS:
            setattr(total, name, getattr(total, name) + getattr(facts, name))
        total.bad_examples = [*total.bad_examples, *facts.bad_examples][:5]
        total.dropped_examples = [*total.dropped_examples, *facts.dropped_examples][:5]
        total.advice = total.advice or facts.advice
        total.reasons, total.tools = total.reasons or facts.reasons, total.tools or facts.tools
        total.count_spelled(facts.as_text, facts.as_tokens)
        for kind, seconds in facts.seconds.items():
            total.seconds[kind] = total.seconds.get(kind, 0.0) + seconds


class StreamedRows(Generic[RowsT]):
    """Rows by position. Positions count on over epochs, and each read should be near the last one. A subclass reads a row in its shard.

    `place` moves to a cursor; without it, the first position is 0.
    """

    INPUTS = "its settings"
    """What rows depend on besides the files and the libraries, in words."""

    def __init__(
        self,
        stream: Stream[RowsT],
        *,
        epoch_rows: int,
        content: str = "",
        announce: Announce = lambda _place, _waited: None,
    ) -> None:
        """`epoch_rows`: an estimate. `content`: a hash of a part of the data. `announce`: see `Announce`."""
        self.stream = stream
        self._epoch_rows = epoch_rows
        self._content = content
        self.tally = StreamTally()
        self._announce = announce
        self._open: OrderedDict[int, RowsT] = OrderedDict()
        self._starts: list[int] = [0]
        self._places: list[Place] = [Place(0, 0)]
        self._windows: dict[Place, CountedWindow] = {}
        self._window_of_last = CountedWindow(stream.windows, Place(0, 0), 0, (), ())
        self._read_before: Sequence[int] = (0, 0, 0)
        self._before: dict[Place, Sequence[int]] = {}
        self._split_numbers: dict[Place, Sequence[int]] = {}
        self._counted_elsewhere: dict[Place, Sequence[int]] = {}
        self._announced: Place | None = None

    def __len__(self) -> int:
        return self.epoch_rows

    @property
    def epoch_rows(self) -> int:
        """Estimated rows of an epoch."""
        return self._epoch_rows

    def cursor(self, position: int) -> dict[str, Any]:
        """The start of a window from which `position` is found, and the rows of its splits; for `place`, on any machine.

        It is the window of the row before `position`: at the end of a run, the window of `position` may not be built, and is not needed.
        """
        window = self._window(max(position - 1, self._starts[0]))
        place = window.place
        about = {"start": window.start, "epoch": place.epoch, "window": place.window, "rows": window.rows}
        return {"data": self._identity(), **about, "read": self._before[place]}

    def place(self, cursor: Mapping[str, Any]) -> None:
        """Start at a cursor. A shard is read or built only when its rows are read.

        Exception: with files without random access, all shards of the window are read in order, in one pass over each file. Raises BadInput
        where the cursor belongs to other data.
        """
        if cursor.get("data") != self._identity():
            raise self._changed_since(cursor.get("data"))
        place = Place(int(cursor["epoch"]), int(cursor["window"]))
        self._starts, self._places = [int(cursor["start"])], [place]
        self._windows.clear()
        self._window_of_last = CountedWindow(self.stream.windows, place, 0, (), ())
        self._counted_elsewhere = {place: cursor["rows"]} if "rows" in cursor and self.stream.windows.sequences is None else {}
        self._read_before = tuple(cursor.get("read", (0, 0, 0)))

    def _changed(self) -> BadInput:
        return BadInput(
            f"{self.stream.uri} has changed since the checkpoint was written: it now gives other rows",
            _RESTORE,
        )

    @cached_property
    def mark(self) -> str:
        """A hash of names, sizes and versions of the files. Their common folder is left out: a data set may move."""
        files = self.stream.recipe.files
        folder = commonpath([dirname(file.path) for file in files])
        about = [f"{relpath(file.path, folder)} {file.mark} {file.size_bytes}" for file in files]
        return sha256("\n".join(about).encode()).hexdigest()[:32]

    def _changed_since(self, before: Sequence[Any] | None) -> BadInput:
        """The error for a cursor of other data, or of other settings."""
        if before is None:
            return BadInput(f"{self.stream.uri} was prepared whole when the checkpoint was written, and is streamed now", _RESTORE)
        _, size_bytes, key, _ = self._identity()
        if key != before[2]:
            why = f"{self.INPUTS}, or the versions of the libraries are others"
            return BadInput(f"{self.stream.uri} gives other rows than when the checkpoint was written: {why}", _RESTORE)
        if size_bytes != before[1]:
            what = f"{size_bytes:,} bytes to read now, {before[1]:,} then"
            return BadInput(f"{self.stream.uri} has other rows than when the checkpoint was written: {what}", _RESTORE)
        what = "as many bytes, and a sample of them differs"
        return BadInput(f"{self.stream.uri} has other rows than when the checkpoint was written: {what}", _RESTORE)

    def _identity(self) -> list[Any]:
        """The inputs of the order of rows that are equal for a copy of the data."""
        sizes = [piece.size_bytes for split in self.stream.splits for piece in split.pieces]
        return [len(self.stream.splits), sum(sizes), self.stream.recipe.key, self._content]

    def _found(self, position: int) -> tuple[RowsT, int]:
        """The shard of a position, and the number of the row in it. Raises BadInput for unusable data, StorageError where they cannot be
        read or stored.
        """
        window = self._window_of_last
        if not window.start <= position < window.end:
            window = self._window_of_last = self._window(position)
        if window.place != self._announced:
            self._tell(window.place)
        split, row = window.at(position)
        shard = self._shard(split)
        if row >= shard.facts.rows:
            raise self._changed()
        return shard, row

    def _window(self, position: int) -> CountedWindow:
        """The window of a position."""
        if position < self._starts[0]:
            raise IndexError(f"position {position} lies before the cursor, {self._starts[0]}")
        index = bisect_right(self._starts, position) - 1
        while True:
            window = self._counted(self._places[index], self._starts[index])
            if position < window.end:
                return window
            if index + 1 == len(self._starts):
                self._starts.append(window.end)
                self._places.append(self._following(window.place))
            if index >= _KEPT_WINDOWS:
                self._forget(_KEPT_WINDOWS // 2)
                index -= _KEPT_WINDOWS // 2
            index += 1

    def _forget(self, windows: int) -> None:
        """Forget the first `windows` windows, which lie far back."""
        for place in self._places[:windows]:
            for known in (self._windows, self._before, self._split_numbers, self._counted_elsewhere):
                known.pop(place, None)
        del self._starts[:windows], self._places[:windows]

    def _following(self, place: Place) -> Place:
        if place in self._counted_elsewhere:  # reading the whole window counts its bad rows
            for split in self._splits_of(place):
                self._shard(split)
        following = self.stream.windows.after(place)
        if following.epoch > place.epoch:
            self._check(whole=True)
        return following

    def _splits_of(self, place: Place) -> Sequence[int]:
        if place not in self._split_numbers:
            self._split_numbers[place] = self.stream.windows.splits_at(place)
        return self._split_numbers[place]

    def _counted(self, place: Place, start: int) -> CountedWindow:
        if place not in self._windows:
            if place != self._announced:
                self._tell(place)
            if place in self._counted_elsewhere:
                self._before[place] = self._read_so_far()
                rows = self._counted_elsewhere[place]
            else:
                rows = self._rows_of(place)
            self._windows[place] = CountedWindow(self.stream.windows, place, start, self._splits_of(place), rows)
        return self._windows[place]

    def _rows_of(self, place: Place) -> Sequence[int]:
        """Rows of each split of a window, from its shards."""
        self._before[place] = self._read_so_far()
        rows = [self._shard(split).facts.rows for split in self._splits_of(place)]
        self._check(whole=False)
        return rows

    def _tell(self, place: Place) -> None:
        self._announced = place
        self._announce(place, self.tally.waited_s)

    def _shard(self, number: int) -> RowsT:
        known = self._open.get(number)
        if known is not None:
            self._open.move_to_end(number)
            return known
        shard = self._read(self.stream.splits[number])
        self._open[number] = shard
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        self.tally.add(number, shard.facts)
        return shard

    def _read(self, split: Split) -> RowsT:
        began = time.perf_counter()
        shard = self.stream.shard(split)
        self.tally.waited_s += time.perf_counter() - began
        if self._announced is not None:
            self._announce(self._announced, self.tally.waited_s)
        return shard

    def _read_so_far(self) -> Sequence[int]:
        """Samples, bad rows and left-out rows, including rows read before the cursor.

        A resumed attempt must not stop because it begins in a part with more bad rows than the whole.
        """
        facts = self.tally.facts
        return [before + here for before, here in zip(self._read_before, (facts.samples, facts.bad, facts.left_out), strict=True)]

    def _check(self, *, whole: bool) -> None:
        """Raises BadInput where too many rows are bad, or no row can be used."""
        facts = self.tally.facts
        good, bad, left_out = self._read_so_far()
        tally = Tally(self.stream.uri, self.stream.max_bad_fraction, good=good, left_out=left_out)
        tally.take(bad, facts.bad_examples, facts.advice)
        if whole or good + bad >= EARLY_CHECK_ROWS:
            tally.check()
        if whole and not facts.rows:
            raise self._nothing_left(facts)

    def _nothing_left(self, facts: ShardFacts) -> BadInput:
        """The error where an epoch has no row."""
        left = "all are held out" if facts.held_out else "none can be used"
        return BadInput(f"{self.stream.uri}: no row is left to train on: {left}", "lower data.validationFraction, or add rows")
