"""A shard of a table: the flat rows of one split in one file, mapped into memory.

Sealed by `tuneyard.data.shard_files`: a line of JSON, which names the arrays, then the arrays. Ids and offsets are kept in 32 bits
if they fit, and a feature with one id per row has no offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.data.shard_files import open_sealed, write_sealed
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.ranking.column_counts import ColumnCounts
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.flat_rows import FlatRows

_ALIGNED = 64
_ROOM_BYTES = 1 << 20
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class TableShard:
    """The rows of a split, and facts about making them."""

    rows: FlatRows
    facts: ShardFacts


def write_table_shard(path: Path, arrays: Arrays, counts: ColumnCounts, facts: ShardFacts) -> None:
    """Write a shard, completely or not at all. Raises StorageError."""
    lean = {name: _lean(array) for name, array in arrays.items()}
    about = {**counts.to_dict(), "rows": counts.rows, "facts": asdict(facts)}
    size_bytes = sum(array.nbytes for array in lean.values()) + _ROOM_BYTES
    write_sealed(path, size_bytes, partial(_write, arrays=lean, about=about))


def open_table_shard(path: Path, config: RankerConfig) -> TableShard:
    """The shard in a file. Raises OSError if there is none, ValueError if it is damaged."""
    content = memoryview(open_sealed(path)).cast("B")
    end = bytes(content[: 1 << 10]).find(b"\n")
    start = int(bytes(content[:end]))
    about = json.loads(bytes(content[end + 1 : start]))
    arrays = {
        name: np.frombuffer(content, dtype, int(np.prod(shape)), start + place).reshape(shape)
        for name, (dtype, shape, place) in about["arrays"].items()
    }
    rows = FlatRows(config, about["rows"], arrays, np.zeros(0, np.uint64), {}, about)
    return TableShard(rows, ShardFacts(**about["facts"]))


def _write(path: Path, *, arrays: Arrays, about: Mapping[str, Any]) -> None:
    places, place = dict[str, tuple[str, tuple[int, ...], int]](), 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, array.shape, place)
        place += _padded(array.nbytes)
    header = json.dumps({**about, "arrays": places}).encode()
    start = _padded(len(header) + 32)
    with path.open("wb") as file:
        file.write(f"{start}\n".encode() + header)
        for array, (_, _, place) in zip(arrays.values(), places.values(), strict=True):
            file.write(b" " * (start + place - file.tell()))
            file.write(np.ascontiguousarray(array).data)


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _lean(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers in 32 bits, if they fit."""
    if array.dtype != np.int64 or not array.size:
        return array
    limits = np.iinfo(np.int32)
    return array.astype(np.int32) if limits.min <= int(array.min()) and int(array.max()) <= limits.max else array
