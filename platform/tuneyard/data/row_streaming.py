"""Rows of programs as a stream: made from splits while a task trains, by the machinery of streamed texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, TrainData
from tuneyard.api.quantities import bytes_text
from tuneyard.data.dataset import first_schema
from tuneyard.data.images import ImageColumn
from tuneyard.data.preparation import Prepared, located_source
from tuneyard.data.report import DataReport
from tuneyard.data.shard_files import remove_leftovers
from tuneyard.data.shared.courier import shared_here
from tuneyard.data.sources import Located
from tuneyard.data.stream.claims import Claims
from tuneyard.data.stream.evaluation_rows import EvaluationRows
from tuneyard.data.stream.opening import HELD_OUT_SPLITS, LEFT_TO_SERVICE_S, Sampled, announced, shards_folder, worker_count
from tuneyard.data.stream.row_recipe import RowRecipe, RowShard
from tuneyard.data.stream.rows import Stream, StreamedRows
from tuneyard.data.stream.splits import sample_of, sequences_of, split_bytes, splits_of
from tuneyard.data.stream.windows import Windows
from tuneyard.data.streaming import StreamedOrder
from tuneyard.data.ways import COUNTED_BYTES
from tuneyard.tracking import Emit, Stage, Warned

FORMAT = "rows"
WHY = "a program reads them"


class StreamedValues(StreamedRows[RowShard]):
    """Rows by position, as dicts from column to value."""

    def __getitem__(self, position: int) -> dict[str, Any]:
        """The row at a position. Raises BadInput for unusable data, StorageError where they cannot be read or stored."""
        shard, row = self._found(position)
        return shard.row(row)


class EvaluatedValues(EvaluationRows[RowShard]):
    """Rows for evaluation, as dicts from column to value."""

    HINT = "leave data.validation out, or name another"

    def __getitem__(self, number: int) -> dict[str, Any]:
        shard, row = self._found(number)
        return shard.row(row)

    def _check(self, shards: Any) -> None:
        super()._check(shards)
        if not sum(self._rows(shard.facts) for shard in shards):
            raise BadInput(f"{self._stream.uri}: no row is held out", "raise data.validationFraction, or leave it out")


def stream_rows(spec: TrainData, *, seed: int, cache_dir: str | Path | None, service: Path | None, emit: Emit, task: str) -> Prepared:
    """As `prepare_rows`, but returns once a sample of some MiB was read. Raises as `prepare_rows`, and for images in no column."""
    emit(Stage(task=task, name="opening the rows as a stream"))
    located = located_source(spec)
    folder = shards_folder(cache_dir)
    remove_leftovers(folder)
    leave_s = LEFT_TO_SERVICE_S if service else 0.0
    found = _described(located, spec, seed, folder, held_out=spec.validation_fraction, leave_s=leave_s)
    validation, beside = None, None
    if spec.validation is not None:
        beside = _described(located_source(spec.validation), spec, seed, folder).stream
        validation = EvaluatedValues(beside, own=True)
    elif spec.validation_fraction:
        validation = EvaluatedValues(found.stream, splits=None if located.size_bytes <= COUNTED_BYTES else HELD_OUT_SPLITS)
    announce = announced(found.stream, 0 if service else worker_count(spec.workers), service, beside)
    rows = StreamedValues(found.stream, epoch_rows=found.epoch_rows, content=found.sampled.facts.content, announce=announce)
    report = _report(located, found)
    for message in report.warnings():
        emit(Warned(task=task, message=message))
    sampled, of = bytes_text(found.sampled.facts.source_bytes), bytes_text(located.size_bytes)
    emit(Stage(task=task, name=f"streaming about {report.rows:,} rows an epoch, by a sample of {sampled} of {of}"))
    return Prepared(rows, validation, report, False, StreamedOrder(rows), streams=(("", rows),))


def _described(
    located: Located, spec: TrainData, seed: int, folder: Path, *, held_out: float = 0.0, leave_s: float = 0.0
) -> Sampled[RowShard]:
    schema, image = first_schema(located), None
    if spec.images is not None:
        image = ImageColumn(spec.images.column, spec.images.short_side)
        if image.name not in schema.names:
            raise BadInput(f"{located.uri}: there is no column {image.name}", f"set data.images.column: {', '.join(schema.names)}")
    recipe = RowRecipe(located.files, schema.serialize().to_pybytes(), held_out, seed, image)
    splits = tuple(splits_of(located.files, split_bytes(located.size_bytes, 0)))
    sizes = [split.size_bytes for split in splits]
    windows = Windows.over(sizes, seed, shuffle=spec.shuffle, sequences=sequences_of(located.files, splits))
    claims = Claims(folder / "claims" / recipe.stream_key)
    stream: Stream[RowShard] = Stream(located.uri, splits, recipe, windows, folder, claims, spec.max_bad_fraction, leave_s, shared_here())
    return Sampled(stream, sample_of(located.files, splits))


def _report(located: Located, found: Sampled[RowShard]) -> DataReport:
    sample = found.sampled.facts
    return DataReport(
        source=located.uri,
        format=FORMAT,
        why=WHY,
        files=len(located.files),
        samples=sample.samples,
        rows=found.epoch_rows,
        validation_rows=0,
        max_length=0,
        packed=False,
        bad=sample.bad,
        bad_examples=sample.bad_examples,
        notes=[*located.notes],
        streamed=True,
        epoch_rows=found.epoch_rows,
    )
