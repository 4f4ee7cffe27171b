"""Opens a JobSpec's data as a stream of rows: finds the format, estimates the length from a sample, starts workers that build ahead."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal

from tuneyard.api import BadInput, TrainData
from tuneyard.data.cache import cache_root
from tuneyard.data.canonical import Canonical
from tuneyard.data.encoders import encoder_of
from tuneyard.data.roles import Roles
from tuneyard.data.samples import Objective, Tally, training_samples
from tuneyard.data.shard_files import remove_leftovers
from tuneyard.data.shared.courier import shared_here
from tuneyard.data.sources import Located
from tuneyard.data.stream.claims import Claims
from tuneyard.data.stream.published import publish
from tuneyard.data.stream.recipe import Recipe
from tuneyard.data.stream.rows import Announce, RowsT, Stream
from tuneyard.data.stream.shards import Shard, ShardFacts
from tuneyard.data.stream.splits import Split, sample_of, sequences_of, split_bytes, splits_of
from tuneyard.data.stream.token_streams import EvaluatedTokens, StreamedTokens
from tuneyard.data.stream.windows import Windows
from tuneyard.data.stream.workers import DataWorkers
from tuneyard.data.way import Way

HELD_OUT_SPLITS = 8
"""A stream above 1 GiB evaluates on what is held out of this many splits."""
_NEXT_TO_NOTHING = 15
"""Niceness of processes whose rows are needed at the first evaluation alone."""
_MOST_WORKERS = 8
LEFT_TO_SERVICE_S = 3.0
"""A rank waits this long for its service to build a shard before it builds the shard itself."""
_LEFT = "check data.maxLength and data.lossOn"
_LOOK = "`tuneyard data inspect` shows the content of the data"


@dataclass(frozen=True)
class Sampled(Generic[RowsT]):
    """A data set as a stream. `sample` stands for the whole."""

    stream: Stream[RowsT]
    sample: Split

    @property
    def size_bytes(self) -> int:
        """Estimated decompressed bytes of all files."""
        return sum(split.size_bytes for split in self.stream.splits)

    @cached_property
    def sampled(self) -> RowsT:
        """The rows of the sample, built unless this machine has them. Raises BadInput where none can be used, and StorageError."""
        shard = self.stream.shard(self.sample)
        if not shard.facts.rows:
            raise _unusable(self.stream.uri, shard.facts)
        return shard

    @property
    def share(self) -> float:
        """The data set divided by its sample, in bytes."""
        return self.size_bytes / max(1, self.sampled.facts.source_bytes)

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch, estimated from the sample. It depends on the data alone."""
        return max(1, math.ceil(self.sampled.facts.rows * self.share))


@dataclass(frozen=True)
class Described(Sampled[Shard]):
    """Texts as a stream."""

    roles: Roles

    @property
    def recipe(self) -> Recipe:
        """The recipe of the stream's rows."""
        assert isinstance(self.stream.recipe, Recipe)
        return self.stream.recipe


@dataclass(frozen=True)
class OpenStream:
    """An opened stream. `validation` None: no rows are held out."""

    rows: StreamedTokens
    validation: EvaluatedTokens | None
    found: Described


@dataclass(frozen=True)
class OpenEvaluation:
    """A data set for evaluation whose rows are made while a task trains."""

    rows: EvaluatedTokens
    found: Described


def describe_stream(
    spec: TrainData,
    located: Located,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    key: dict[str, Any],
    folder: Path,
    leave_s: float = 0.0,
    among: int = 1,
) -> Described:
    """Describe a data set as a stream. The first rows and the footers of Parquet files are read.

    `key`: all inputs of rows besides the files. `folder`: that of shards. `leave_s`: see `Stream`. `among`: see `Way`. Raises BadInput,
    StorageError.
    """
    roles, _ = training_samples(located, Tally(located.uri), source=spec, spec=spec, objective=objective)
    encoder = encoder_of(spec, tokenizer, roles, objective)
    needs_assistant = objective == "sft" and spec.loss_on != "all"
    about = {**key, "roles": roles.identity}
    recipe = Recipe(located.files, Canonical(roles, needs_assistant), encoder, spec.pack, spec.validation_fraction, seed, about)
    splits = tuple(splits_of(located.files, split_bytes(located.size_bytes, spec.max_length)))
    sizes = [split.size_bytes for split in splits]
    windows = Windows.over(sizes, seed, shuffle=spec.shuffle, sequences=sequences_of(located.files, splits), among=among)
    claims = Claims(folder / "claims" / recipe.stream_key)
    bad = spec.max_bad_fraction
    stream: Stream[Shard] = Stream(located.uri, splits, recipe, windows, folder, claims, bad, leave_s, shared_here())
    return Described(stream, sample_of(located.files, splits, among), roles)


def shards_folder(cache_dir: str | Path | None) -> Path:
    """The folder of shards in the cache."""
    return cache_root(cache_dir) / "shards"


def open_stream(
    spec: TrainData,
    located: Located,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    key: dict[str, Any],
    cache_dir: str | Path | None,
    service: Path | None,
    way: Way,
) -> OpenStream:
    """Open the stream. Only the first rows and a sample of at most 4 MiB are read.

    `key`: all inputs of rows besides the files. `service`: the folder in which the service of this machine finds streams; None: there is no
    service, and this process starts workers. Raises BadInput (unusable data), StorageError (source not reachable, no room for shards).
    """
    folder, leave_s = shards_folder(cache_dir), LEFT_TO_SERVICE_S if service else 0.0
    how: Any = {"objective": objective, "seed": seed, "key": key, "folder": folder, "leave_s": leave_s, "among": way.among}
    found = describe_stream(spec, located, tokenizer, **how)
    remove_leftovers(folder)
    stream, recipe = found.stream, found.recipe
    beside = None
    if spec.validation_fraction > 0 and way.all_held_out:
        aside = replace(recipe, only_held_out=True)
        # Not a service's: it makes training rows.
        beside = replace(stream, recipe=aside, claims=Claims(folder / "claims" / aside.stream_key), leave_s=0.0)
    announce = announced(stream, 0 if service else worker_count(spec.workers, way.among), service, beside)
    sample = found.sampled.facts
    packed = recipe.has_samples
    about: Any = {"epoch_rows": found.epoch_rows, "content": sample.content, "longest": found.sampled.longest}
    rows = StreamedTokens(stream, packed=packed, announce=announce, **about)
    validation = None
    if spec.validation_fraction > 0:
        validation = EvaluatedTokens(beside or stream, splits=None if beside else HELD_OUT_SPLITS, packed=packed)
    return OpenStream(rows, validation, found)


def open_evaluation(
    spec: TrainData,
    located: Located,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    key: dict[str, Any],
    cache_dir: str | Path | None,
    on_progress: Callable[[int, int], None],
) -> OpenEvaluation:
    """Open a data set for evaluation. The first rows and a sample of 4 MiB are read, and processes begin to make the others, below all
    other work of the machine.

    `key`, `on_progress`: as for a stream and for `EvaluatedTokens`. Raises as `open_stream`.
    """
    folder = shards_folder(cache_dir)
    found = describe_stream(spec, located, tokenizer, objective=objective, seed=seed, key=key, folder=folder)
    remove_leftovers(folder)
    longest = found.sampled.longest
    if is_first_here():
        DataWorkers(found.stream, worker_count(spec.workers), beside=found.stream, niceness=_NEXT_TO_NOTHING).start()
    return OpenEvaluation(
        EvaluatedTokens(found.stream, own=True, packed=found.recipe.has_samples, longest=longest, on_progress=on_progress), found
    )


def _unusable(uri: str, sample: ShardFacts) -> BadInput:
    what = f"{uri}: no row of a sample of {sample.source_bytes:,} bytes can be used"
    if sample.held_out:
        return BadInput(f"{what}: {sample.held_out:,} are held out for evaluation", "lower data.validationFraction")
    if sample.dropped:
        return BadInput(f"{what}: {sample.dropped:,} were dropped, such as {sample.dropped_examples[0]}", _LEFT)
    why = f", such as {sample.bad_examples[0]}" if sample.bad_examples else ""
    return BadInput(f"{what}{why}", sample.advice or _LOOK)


def announced(stream: Stream[Any], workers: int, service: Path | None, beside: Stream[Any] | None = None) -> Announce:
    """Arrange that shards are built ahead: by the service of this machine, or by workers. Only local rank 0 does so, for all ranks.

    `beside`: see `DataWorkers`.
    """
    if not is_first_here():
        return lambda _place, _waited: None
    if service is not None:
        return publish(service, stream).tell
    if not workers:
        return lambda _place, _waited: None
    here = DataWorkers(stream, workers, beside=beside)
    here.start()  # before the model: a fork of a small process, without a GPU
    return here.reads


def is_first_here() -> bool:
    """Whether this process starts workers for all ranks of its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def worker_count(asked: int | Literal["auto"], among: int = 1) -> int:
    """Number of processes that build shards: as asked, else the cores that the ranks of this machine do not need, at most 8, divided by the
    number of streams.
    """
    if asked != "auto":
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores - int(os.environ.get("LOCAL_WORLD_SIZE", "1"))) // among)
