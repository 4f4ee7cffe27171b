"""Opens a JobSpec's data as a stream of rows: finds the format, estimates the length from a sample, starts workers that build ahead."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tuneyard.api import BadInput, TrainData
from tuneyard.data.cache import cache_root
from tuneyard.data.canonical import Canonical
from tuneyard.data.encoders import encoder_of
from tuneyard.data.roles import Roles
from tuneyard.data.samples import Objective, Tally, training_samples
from tuneyard.data.sources import Located
from tuneyard.data.stream.claims import Claims
from tuneyard.data.stream.held_out_rows import HeldOutRows
from tuneyard.data.stream.published import publish
from tuneyard.data.stream.recipe import Recipe
from tuneyard.data.stream.rows import Announce, Stream, StreamedRows
from tuneyard.data.stream.shard_files import remove_leftovers
from tuneyard.data.stream.shards import Shard, ShardFacts
from tuneyard.data.stream.splits import sample_of, sequences_of, split_bytes, splits_of
from tuneyard.data.stream.windows import Windows
from tuneyard.data.stream.workers import DataWorkers

_HELD_OUT_SPLITS = 8
_MOST_WORKERS = 8
LEFT_TO_SERVICE_S = 3.0
"""A rank waits this long for its service to build a shard before it builds the shard itself."""
_LEFT = "check data.maxLength and data.lossOn"
_LOOK = "`tuneyard data inspect` shows the content of the data"


@dataclass(frozen=True)
class OpenStream:
    """An opened stream. `validation` None: no rows are held out."""

    rows: StreamedRows
    validation: HeldOutRows | None
    roles: Roles
    encoder: Any
    sample: ShardFacts


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
) -> OpenStream:
    """Open the stream. Only the first rows and a sample of 4 MiB are read.

    `key`: all inputs of rows besides the files. `service`: the folder in which the service of this machine finds streams; None: there is no
    service, and this process starts workers.
    Raises BadInput (unusable data), StorageError (source not reachable, no room for shards).
    """
    roles, _ = training_samples(located, Tally(located.uri), source=spec, spec=spec, objective=objective)
    encoder = encoder_of(spec, tokenizer, roles, objective)
    needs_assistant = objective == "sft" and spec.loss_on != "all"
    about = {**key, "roles": roles.identity}
    recipe = Recipe(located.files, Canonical(roles, needs_assistant), encoder, spec.pack, spec.validation_fraction, seed, about)
    splits = tuple(splits_of(located.files, split_bytes(located.size_bytes, spec.max_length)))
    folder = cache_root(cache_dir) / "shards"
    sizes = [split.size_bytes for split in splits]
    windows = Windows.over(sizes, seed, shuffle=spec.shuffle, sequences=sequences_of(located.files, splits))
    claims = Claims(folder / "claims" / recipe.stream_key)
    remove_leftovers(folder)
    leave_s = LEFT_TO_SERVICE_S if service else 0.0
    stream: Stream[Shard] = Stream(located.uri, splits, recipe, windows, folder, claims, spec.max_bad_fraction, leave_s)
    announce = announced(stream, 0 if service else worker_count(spec.workers), service)
    sample = stream.shard(sample_of(located.files, splits)).facts
    if not sample.rows:
        raise _unusable(located.uri, sample)
    estimate = max(1, math.ceil(sample.rows * sum(sizes) / max(1, sample.source_bytes)))
    rows = StreamedRows(stream, epoch_rows=estimate, packed=recipe.has_samples, content=sample.content, announce=announce)
    validation = HeldOutRows(stream, _HELD_OUT_SPLITS, packed=recipe.has_samples) if spec.validation_fraction > 0 else None
    return OpenStream(rows, validation, roles, encoder, sample)


def _unusable(uri: str, sample: ShardFacts) -> BadInput:
    what = f"{uri}: no row of a sample of {sample.source_bytes:,} bytes can be used"
    if sample.held_out:
        return BadInput(f"{what}: {sample.held_out:,} are held out for evaluation", "lower data.validationFraction")
    if sample.dropped:
        return BadInput(f"{what}: {sample.dropped:,} were dropped, such as {sample.dropped_examples[0]}", _LEFT)
    why = f", such as {sample.bad_examples[0]}" if sample.bad_examples else ""
    return BadInput(f"{what}{why}", sample.advice or _LOOK)


def announced(stream: Stream[Any], workers: int, service: Path | None) -> Announce:
    """Arrange that shards are built ahead: by the service of this machine, or by workers. Only local rank 0 does so, for all ranks."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return lambda _place, _waited: None
    if service is not None:
        return publish(service, stream).tell
    if not workers:
        return lambda _place, _waited: None
    here = DataWorkers(stream, workers)
    here.start()  # before the model: a fork of a small process, without a GPU
    return here.reads


def worker_count(asked: int | Literal["auto"]) -> int:
    """Number of processes that build shards: as asked, else the cores that the ranks of this machine do not need, at most 8."""
    if asked != "auto":
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores - int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
