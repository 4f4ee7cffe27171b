"""A shard: the packed rows of one split in one file, written once, named by its content, memory-mapped.

The file is an Arrow stream, sealed by `shard_files`. A row takes about a third of its size in `datasets`: tokens have 16 bits where the
vocabulary allows it, loss has one bit per token, and samples are stored as lengths.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.data.shard_files import open_sealed, write_sealed
from tuneyard.data.token_batch import RowParts
from tuneyard.data.tokens import Ints

_BATCH_TOKENS = 1 << 20


@dataclass
class ShardFacts:
    """Counts and times of building a shard. Seconds count one process."""

    rows: int = 0
    held_out: int = 0
    """Rows for evaluation, stored after the training rows."""
    tokens: int = 0
    loss_tokens: int = 0
    samples: int = 0
    bad: int = 0
    left_out: int = 0
    truncated: int = 0
    dropped: int = 0
    cut_answers: int = 0
    alike: int = 0
    muted: int = 0
    as_text: dict[str, int] = field(default_factory=dict)
    as_tokens: dict[str, int] = field(default_factory=dict)
    """Samples that spell a control token, by token."""
    reasons: bool = False
    tools: bool = False
    source_bytes: int = 0
    content: str = ""
    """A hash of the source content, and of all other inputs of rows."""
    bad_examples: list[str] = field(default_factory=list)
    dropped_examples: list[str] = field(default_factory=list)
    advice: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by kind of work: storage, decoding, tokenising, packing."""

    def count_spelled(self, as_text: Mapping[str, int], as_tokens: Mapping[str, int]) -> None:
        """Add counts of samples that spell a control token."""
        self.as_text = dict(Counter(self.as_text) + Counter(as_text))
        self.as_tokens = dict(Counter(self.as_tokens) + Counter(as_tokens))


@dataclass(frozen=True)
class Samples:
    """Concatenated token sequences; sample i has `lengths[i]` tokens. `counted`: True for tokens with loss."""

    ids: Ints
    counted: npt.NDArray[np.bool_]
    lengths: npt.NDArray[np.int64]


class _Columns(NamedTuple):
    """A record batch as numpy views into the mapped file, made once for all its rows."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.int32]
    """The start of each row in `ids`, then the end of the last row."""
    counted: npt.NDArray[np.uint8]
    """Bits of loss, eight tokens per byte."""
    lengths: npt.NDArray[np.int32]
    """Lengths of samples. `sample_starts`: the first sample of each row, then the number of all samples."""
    sample_starts: npt.NDArray[np.int32]
    packed: bool

    @classmethod
    def of(cls, batch: Any, packed: bool) -> _Columns:
        ids, counted, samples = batch.columns
        bits = np.frombuffer(counted.values.buffers()[1], np.uint8)
        return cls(ids.values.to_numpy(), ids.offsets.to_numpy(), bits, samples.values.to_numpy(), samples.offsets.to_numpy(), packed)

    def row(self, number: int) -> RowParts:
        start, end = self.starts[number : number + 2].tolist()
        first = start >> 3
        bits = np.unpackbits(self.counted[first : (end + 7) >> 3], bitorder="little").view(np.bool_)
        begin = start - (first << 3)
        samples = self.lengths[self.sample_starts[number] : self.sample_starts[number + 1]] if self.packed else None
        return RowParts(self.ids[start:end], bits[begin : begin + end - start], None, samples)


class Shard:
    """An open shard. `row(i)` for 0 <= i < facts.rows + facts.held_out."""

    def __init__(self, path: Path) -> None:
        """Raises OSError for a missing shard, ValueError for a damaged one."""
        reader = pa.ipc.open_stream(open_sealed(path))
        self._schema = reader.schema
        self._batches = list(reader)
        self._starts = list(accumulate((batch.num_rows for batch in self._batches), initial=0))
        self.facts = ShardFacts(**json.loads(reader.schema.metadata[b"facts"]))
        self.packed = reader.schema.metadata[b"packed"] == b"1"

    def row(self, number: int) -> RowParts:
        """A row, as views into the file."""
        index = bisect_right(self._starts, number) - 1
        return self._columns[index].row(number - self._starts[index])

    @cached_property
    def _columns(self) -> list[_Columns]:
        return [_Columns.of(batch, self.packed) for batch in self._batches]

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each row."""
        return np.concatenate([np.diff(_offsets(batch.column(0))) for batch in self._batches] or [np.zeros(0, np.int64)])

    @property
    def longest(self) -> int:
        """Tokens of the longest sample; 0 where there is none."""
        lengths = [batch.column(2).values.to_numpy() for batch in self._batches] if self.packed else [self.tokens]
        return max((int(each.max()) for each in lengths if each.size), default=0)


def write_shard(path: Path, samples: Samples, rows: Sequence[Sequence[int]], facts: ShardFacts, *, packed: bool, small: bool) -> None:
    """Write rows (each a list of sample numbers) to `path` atomically. `small`: all tokens are below 65,536.

    Raises StorageError where the disk is full even after all older shards in the folder were removed.
    """
    size_bytes = 4 * len(samples.ids) + (16 << 20)
    write_sealed(path, size_bytes, partial(_write, samples=samples, rows=rows, facts=facts, packed=packed, small=small))


def _write(path: Path, *, samples: Samples, rows: Sequence[Sequence[int]], facts: ShardFacts, packed: bool, small: bool) -> None:
    kind = pa.uint16() if small else pa.int32()
    metadata = {"facts": json.dumps(asdict(facts)), "packed": "1" if packed else "0"}
    fields = [("ids", pa.list_(kind)), ("counted", pa.list_(pa.bool_())), ("samples", pa.list_(pa.int32()))]
    schema = pa.schema(fields, metadata=metadata)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(samples.lengths)])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for chosen in _batches(rows, samples.lengths):
            writer.write_batch(_batch(chosen, samples, starts, schema))


def _batches(rows: Sequence[Sequence[int]], lengths: npt.NDArray[np.int64]) -> list[Sequence[Sequence[int]]]:
    found, start, tokens = [], 0, 0
    for number, row in enumerate(rows):
        tokens += int(lengths[list(row)].sum())
        if tokens >= _BATCH_TOKENS:
            found.append(rows[start : number + 1])
            start, tokens = number + 1, 0
    return [*found, rows[start:]] if start < len(rows) else found


def _batch(rows: Sequence[Sequence[int]], samples: Samples, starts: npt.NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
    items = np.fromiter((item for row in rows for item in row), dtype=np.int64)
    counts = np.fromiter((len(row) for row in rows), dtype=np.int64)
    lengths = samples.lengths[items]
    # The place of each token in `samples`: the start of its sample plus the token's offset in it.
    ends = np.cumsum(lengths)
    places = np.repeat(starts[items] - (ends - lengths), lengths) + np.arange(int(ends[-1]))
    borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    offsets = np.concatenate([np.zeros(1, np.int64), ends])[borders]
    kind = schema.field("ids").type.value_type
    columns = [
        pa.ListArray.from_arrays(_as_offsets(offsets), pa.array(samples.ids[places].astype(kind.to_pandas_dtype()), type=kind)),
        pa.ListArray.from_arrays(_as_offsets(offsets), pa.array(samples.counted[places])),
        pa.ListArray.from_arrays(_as_offsets(borders), pa.array(lengths.astype(np.int32))),
    ]
    return pa.record_batch(columns, schema=schema)


def _as_offsets(offsets: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(offsets.astype(np.int32))


def _offsets(column: Any) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    return found
