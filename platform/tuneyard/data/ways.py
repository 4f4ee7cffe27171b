"""The way in which rows of a data set are made: all before the first step, or while the task trains.

Both ways give the same rows in the same order, so time decides: data that take longer than about ten seconds to prepare are streamed.
Clocks differ between machines, so a way is chosen once for all ranks, and kept by attempts that resume from a checkpoint. Numbers on which
rows or steps depend never follow from the way: see `Way`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, StorageError, TrainData
from tuneyard.catalog.cpu import usable_cores
from tuneyard.data.mix_parts import data_sets, of_part
from tuneyard.data.preparation import MAX_PROCESSES, is_prepared, located_source, row_settings
from tuneyard.data.samples import Objective, Tally, samples_of
from tuneyard.data.sources import Located
from tuneyard.data.stream.opening import Described, describe_stream, shards_folder
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.splits import Split, is_cut_by_lines
from tuneyard.data.stream.windows import is_small
from tuneyard.data.way import VALIDATION, Way, Ways

PREPARED_WITHIN_S = 10.0
"""Data that take longer are streamed."""
COUNTED_BYTES = 1 << 30
"""Up to this size, `epochs` counts all rows before the first step, and `validationFraction` evaluates on all samples that are held out.
Above it, rows are estimated, and evaluation is on a part of these samples. A limit in seconds would make both depend on the machine.
"""
_LARGEST_SAMPLE_BYTES = 32 << 20
"""A sample of splits that cannot be cut, such as large row groups, may take longer than preparation may. Their size decides then."""
_FEWEST_ASIDE = 64
"""Samples expected on either side of `validationFraction` if data are streamed. Preparation moves a sample where a side is empty."""
_EVALUATED_AT_ONCE_BYTES = 8 << 20
"""A data set of `validation` up to this size is prepared first, without a sample of it."""
_HASHED_BYTES = 2 << 30
"""Local data above this size are not looked for in the cache of prepared data: the name of an entry is a hash of all bytes."""
_EVERY_PIECE, _BATCH, _TIMED_BATCHES, _TIMED_S = 8, 32, 8, 0.5
"""The pace is measured on each eighth piece of the sample, batch by batch, up to a number of batches and of processor seconds."""
_USUAL_BYTES_PER_S = 1.5e6
"""Bytes of plain text that one core prepares in a second, where no pace is measured (docs/benchmarks/data_worker_rate.md)."""


def choose_ways(
    spec: TrainData,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    steps: int | None,
    cache_dir: str | Path | None = None,
    kept: Ways | None = None,
    prepared: Collection[str] | None = None,
) -> dict[str, Way]:
    """Choose the way of each data set of `spec`, with `from` resolved to `source`.

    `steps`: those of the task; None: `epochs` gives them. `kept`: ways of the attempt to resume. `prepared`: names of data sets that all
    machines have prepared; None: look at this machine's cache. Parts of a mixture, and `validation`, are judged by the sum of their
    seconds. Raises BadInput (unusable data), StorageError (source not reachable).
    """
    ways, seconds, streams = dict[str, Way](), dict[str, float](), dict[str, Way]()
    for name, part in data_sets(spec).items():
        counted = steps is None and name != VALIDATION
        if kept is not None and name in kept and part.limit is None:
            ways[name] = kept[name] if part.streaming is None else replace(kept[name], streamed=part.streaming)
            continue
        try:
            among = 1 if steps is None or name == VALIDATION else max(1, len(spec.mix))
            found = _DataSet(part, tokenizer, objective, seed, cache_dir, evaluated=name == VALIDATION, among=among)
            streamed = found.decided(counted=counted, is_prepared=None if prepared is None else name in prepared)
            mixed = bool(spec.mix) and name != VALIDATION
            ways[name] = found.streamed if streamed else Way(False, found.estimate if mixed and not counted else None, among=among)
            if streamed is None:
                seconds[name], streams[name] = found.seconds, found.streamed
        except BadInput as error:
            raise (of_part(name, error) if spec.mix and name != VALIDATION else error) from error
    if sum(seconds.values()) > PREPARED_WITHIN_S:
        ways |= streams
    return ways


def prepared_here(
    spec: TrainData, tokenizer: Any, *, objective: Objective, seed: int, cache_dir: str | Path | None = None
) -> frozenset[str]:
    """Names of the data sets that this machine has prepared, of those whose way is not given. Raises as `choose_ways`."""
    parts = {name: part for name, part in data_sets(spec).items() if part.streaming is None and part.limit is None}
    return frozenset(name for name, part in parts.items() if _DataSet(part, tokenizer, objective, seed, cache_dir).is_prepared)


def decided(
    *,
    asked: bool | None,
    limited: bool,
    counted: bool,
    held_out: bool,
    size_bytes: Callable[[], int],
    is_prepared: Callable[[], bool],
    begins_early: Callable[[], bool],
) -> bool | None:
    """Whether a data set is streamed; None: its seconds decide.

    `counted`: the number of steps comes from that of rows. `held_out`: a share of the samples is held out. `size_bytes`: of the files.
    `is_prepared`: whether the rows are in the cache. `begins_early`: whether a stream has its first row before all are made. These three
    are called only where they matter.
    """
    if limited:
        return False
    if asked is not None:
        return asked
    if counted or (held_out and size_bytes() > COUNTED_BYTES):
        return size_bytes() > COUNTED_BYTES
    return False if is_prepared() or not begins_early() else None


def expects_stream(spec: TrainData, size_bytes: int, *, steps: int | None, cores: int) -> bool:
    """Whether data of this size, in one source, will probably be streamed. It needs no tokenizer and no clock, for plans."""
    found = decided(
        asked=spec.streaming,
        limited=spec.limit is not None,
        counted=steps is None,
        held_out=spec.validation_fraction > 0,
        size_bytes=lambda: size_bytes,
        is_prepared=lambda: False,
        begins_early=lambda: not is_small(size_bytes),
    )
    return size_bytes / (_USUAL_BYTES_PER_S * cores) > PREPARED_WITHIN_S if found is None else found


class _DataSet:
    """A data set whose way is to be chosen. `evaluated`: its rows are needed at the first evaluation, and then all of them. `among`: see
    `Way`.
    """

    def __init__(
        self,
        spec: TrainData,
        tokenizer: Any,
        objective: Objective,
        seed: int,
        cache_dir: str | Path | None,
        *,
        evaluated: bool = False,
        among: int = 1,
    ) -> None:
        self._spec, self._tokenizer, self._cache_dir, self._evaluated, self._among = spec, tokenizer, cache_dir, evaluated, among
        self._how: Any = {"objective": objective, "seed": seed}

    @cached_property
    def located(self) -> Located:
        return located_source(self._spec)

    def decided(self, *, counted: bool, is_prepared: bool | None) -> bool | None:
        """`decided`, of this data set. `is_prepared` None: look at the cache of this machine."""
        found = decided(
            asked=self._spec.streaming,
            limited=self._spec.limit is not None,
            counted=counted,
            held_out=self._spec.validation_fraction > 0,
            size_bytes=lambda: self.located.size_bytes,
            is_prepared=lambda: self.is_prepared if is_prepared is None else is_prepared,
            begins_early=lambda: self._begins_early,
        )
        if found is None and self._is_coarse:
            return self.located.size_bytes > COUNTED_BYTES
        return found if found is not None or self._has_both_sides else False

    @property
    def streamed(self) -> Way:
        """The way of a stream."""
        held_out = self._spec.validation_fraction > 0
        return Way(streamed=True, all_held_out=held_out and self.located.size_bytes <= COUNTED_BYTES, among=self._among)

    @property
    def is_prepared(self) -> bool:
        """Whether the cache of this machine has the rows. Local files are hashed for it."""
        if sum(file.size_bytes for file in self.located.files if file.is_local) > _HASHED_BYTES:
            return False
        return is_prepared(self._spec, self.located, self._tokenizer, cache_dir=self._cache_dir, **self._how)

    @property
    def estimate(self) -> int | None:
        """Rows of an epoch, estimated as for a stream; None for data that are never streamed, whose rows are counted."""
        if self._spec.limit is not None or not self._begins_early or self._is_coarse:
            return None
        try:
            return self._described.epoch_rows
        except StorageError:  # prepared rows need a cache that can be read, and no more
            with tempfile.TemporaryDirectory() as folder:
                return self._describe(Path(folder)).epoch_rows

    @property
    def _begins_early(self) -> bool:
        plain = all(is_cut_by_lines(file) for file in self.located.files)
        if self._evaluated:
            return (self.located.size_bytes if plain else self._described.size_bytes) > _EVALUATED_AT_ONCE_BYTES
        if plain and is_small(self.located.size_bytes, self._among):
            return False
        return not is_small(self._described.size_bytes, self._among) and self._described.stream.windows.count(0) > 1

    @property
    def _is_coarse(self) -> bool:
        return self._described.sample.size_bytes > _LARGEST_SAMPLE_BYTES

    @property
    def _has_both_sides(self) -> bool:
        held_out = self._spec.validation_fraction
        samples = self._described.sampled.facts.samples * self._described.share
        return not held_out or min(held_out, 1 - held_out) * samples >= _FEWEST_ASIDE

    @cached_property
    def seconds(self) -> float:
        """Estimated seconds to prepare all rows on this machine."""
        processes = min(usable_cores(), MAX_PROCESSES)
        facts = self._described.sampled.facts
        return _seconds_per_token(self._described, _TIMED_S / self._among) * facts.tokens * self._described.share / processes

    @cached_property
    def _described(self) -> Described:
        return self._describe(shards_folder(self._cache_dir))

    def _describe(self, folder: Path) -> Described:
        key = row_settings(self._spec, self._tokenizer, self._how["objective"])
        return describe_stream(self._spec, self.located, self._tokenizer, key=key, folder=folder, among=self._among, **self._how)


def _seconds_per_token(described: Described, most_s: float) -> float:
    """Processor seconds in which one core makes a token, by some rows of the sample. `most_s`: seconds after which it ends."""
    recipe, sample = described.recipe, described.sample
    data = SplitData(recipe.files, Split(sample.number, sample.pieces[::_EVERY_PIECE]))
    samples = samples_of(data.records(), Tally("", max_bad_fraction=1.0), recipe.canonical)
    seconds, tokens = 0.0, 0
    for number in range(_TIMED_BATCHES):
        began = time.process_time()
        made = sum(map(len, recipe.encoder.encode(list(islice(samples, _BATCH))).ids))
        if not made:
            break
        if number == 1:  # the batch before has also compiled the chat template
            seconds, tokens = 0.0, 0
        seconds, tokens = seconds + time.process_time() - began, tokens + made
        if seconds > most_s:
            break
    return seconds / tokens if tokens else 0.0
