"""Shards of rows for programs: the columns and types of the first rows, and images decoded. Held-out rows count after those to train on."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import blake2b, sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tuneyard.data.dataset import fitted, good_records, next_records
from tuneyard.data.file_types import DataFile
from tuneyard.data.holdout import held_out_by_hash
from tuneyard.data.images import PIXELS, BadImage, ImageColumn
from tuneyard.data.row_records import Record
from tuneyard.data.samples import Tally
from tuneyard.data.shard_files import keep_newest, open_sealed, write_sealed
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.stream.split_recipe import Clock, SplitRecipe
from tuneyard.data.stream.windows import WINDOW

_VERSION = 1
_TRAIN, _HELD_OUT = {b"held_out": b"0"}, {b"held_out": b"1"}
"""Beside each batch of a file. The last one has no rows, and the facts."""
_BATCH = 128
"""Rows that are fitted at once."""
_BATCH_BYTES = 16 << 20
"""Pixels of a batch of rows with images, in bytes."""
_ROOM_BYTES = 1 << 20
_IMAGES_OF_ANY_VERSION = "images-"
_ROWS, _IMAGES = "rows-2-", f"{_IMAGES_OF_ANY_VERSION}2-"
"""Beginnings of names, with the version of the files. Checkpoints know rows by `_VERSION`, which is that of their values."""
KEPT_BYTES = 64 << 30
"""Bytes of shards with images that stay on a disk; at least those of four windows."""
_KEPT_SHARDS = 4 * WINDOW
_ADVICE = "repair or remove these images, or raise data.maxBadFraction"


class RowShard:
    """An open shard. `row(i)` for 0 <= i < facts.rows + facts.held_out."""

    def __init__(self, path: Path) -> None:
        """Raises OSError for a missing shard, ValueError for a damaged one."""
        reader = pa.ipc.open_stream(open_sealed(path))
        *stored, (_, told) = reader.iter_batches_with_custom_metadata()
        self._batches = [batch for batch, mark in sorted(stored, key=lambda each: each[1] == _HELD_OUT)]
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))
        self.facts = ShardFacts(**json.loads(told["facts"]))
        self._image = reader.schema.metadata[b"image"].decode()

    def row(self, number: int) -> dict[str, Any]:
        """The values by column. An image is an array of height x width x 3 bytes."""
        index = bisect_right(self._ends, number)
        first = self._ends[index - 1] if index else 0
        values: dict[str, Any] = self._batches[index].slice(number - first, 1).to_pylist()[0]
        if self._image:
            made = values[self._image]
            values[self._image] = np.array(np.frombuffer(made["pixels"], np.uint8)).reshape(made["height"], made["width"], 3)
        return values


@dataclass(frozen=True)
class RowRecipe(SplitRecipe[RowShard]):
    """All inputs of rows. `schema`: the columns of the source and their types, as Arrow's bytes. `image`: the column to decode, if any."""

    files: tuple[DataFile, ...]
    schema: bytes
    held_out: float = 0.0
    seed: int = 0
    image: ImageColumn | None = None

    @cached_property
    def key(self) -> str:
        aside = [self.held_out, self.seed if self.held_out else 0]
        image = self.image.identity if self.image is not None else None
        return sha256(json.dumps([_VERSION, self.schema.hex(), *aside, image]).encode()).hexdigest()

    @property
    def prefix(self) -> str:
        return _IMAGES if self.image is not None else _ROWS

    def open(self, path: Path) -> RowShard:
        return RowShard(path)

    def write(self, data: SplitData, path: Path, clock: Clock, content: str) -> None:
        write_sealed(path, data.read_bytes + _ROOM_BYTES, partial(self._write, data, clock, content))

    def _write(self, data: SplitData, clock: Clock, content: str, path: Path) -> None:
        """Rows as they are decoded: the pixels of a split may take many times the memory of its files."""
        tally = Tally("")
        facts = ShardFacts(source_bytes=data.read_bytes, content=content, seconds=clock.seconds)
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        stored = self._stored(schema).with_metadata({"image": self.image.name if self.image is not None else ""})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, stored) as writer:
            for batch, aside in clock.each("decoding", self._batches(good_records(data.records(), tally), schema, tally)):
                for chosen, mark in ((~aside, _TRAIN), (aside, _HELD_OUT)):
                    if chosen.any():
                        writer.write_batch(batch.filter(pa.array(chosen)).replace_schema_metadata(stored.metadata), custom_metadata=mark)
                facts.rows, facts.held_out = facts.rows + int((~aside).sum()), facts.held_out + int(aside.sum())
            facts.samples, facts.bad = tally.good, tally.bad
            facts.bad_examples, facts.advice = tally.bad_examples, tally.advice if tally.bad else ""
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=stored), custom_metadata={"facts": json.dumps(asdict(facts))})

    def trim(self, made: Path) -> None:
        with suppress(FileNotFoundError):  # another process makes room too
            if self.image is not None:
                keep_newest(made.parent, _IMAGES_OF_ANY_VERSION, max(KEPT_BYTES, _KEPT_SHARDS * made.stat().st_size))

    def _batches(self, records: Iterator[Record], schema: pa.Schema, tally: Tally) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Rows in batches, and whether each is held out. A row is held out by what its source has, so that another size moves none."""
        while chunk := next_records(records, _BATCH):
            batch, fitting = fitted(chunk, schema, tally)
            aside = np.zeros(batch.num_rows, dtype=bool)
            if self.held_out:
                hashes = np.fromiter(map(content_hash, batch.to_pylist()), dtype=np.uint64, count=batch.num_rows)
                aside = held_out_by_hash(hashes, self.held_out, self.seed)
            if self.image is None:
                yield batch, aside
            else:
                yield from self._with_images(self.image, batch, fitting, aside, tally)

    def _with_images(
        self, image: ImageColumn, batch: pa.RecordBatch, records: Sequence[Record], aside: Any, tally: Tally
    ) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """The rows with pixels, in batches of about _BATCH_BYTES."""
        schema = self._stored(batch.schema)
        made, kept, size_bytes = list[dict[str, Any]](), list[int](), 0
        for number, (record, values) in enumerate(zip(records, batch.to_pylist(), strict=True)):
            try:
                decoded = image.decoded(values[image.name])
            except BadImage as error:
                tally.became_bad(record.place, str(error), advice=_ADVICE)
                continue
            made.append({**values, image.name: decoded})
            kept.append(number)
            size_bytes += len(decoded["pixels"])
            if size_bytes >= _BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(made, schema=schema), aside[kept]
                made, kept, size_bytes = [], [], 0
        if made:
            yield pa.RecordBatch.from_pylist(made, schema=schema), aside[kept]

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema of a shard, for that of its source."""
        if self.image is None:
            return schema
        return schema.set(schema.get_field_index(self.image.name), pa.field(self.image.name, PIXELS))


def content_hash(row: Mapping[str, Any]) -> int:
    """64 bits of the values of a row, by which it is held out."""
    return int.from_bytes(blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest(), "little")
