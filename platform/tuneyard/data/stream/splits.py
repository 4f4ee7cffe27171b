"""A data set cut into splits, from its listing alone: the unit in which rows are built, shuffled and handed out.

Lines of an uncompressed file are cut anywhere; Parquet by row groups; other files are taken whole. Small files share a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuneyard.data.file_types import DataFile
from tuneyard.data.records import parquet_file

LEAST_SPLIT_BYTES = 512 << 10
_MOST_SPLIT_BYTES = 64 << 20
_MOST_SPLITS = 20_000
_ROWS_OF_A_SHARD = 64
"""At least so many full rows: packing a shard by itself then leaves about half a row of 64 unused."""
_BYTES_PER_TOKEN = 4
_SAMPLE_BLOCKS, _SAMPLE_BLOCK_BYTES = 64, 64 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file. Of lines: those whose first byte is in [start, end). Of Parquet: row groups [start, end). Else: all of it."""

    file: int
    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    number: int
    pieces: tuple[Piece, ...]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def split_bytes(total_bytes: int, max_length: int) -> int:
    """Source bytes of a split: 512 KiB, more for long rows and for more than 10 GB, 64 MiB at most."""
    wished = max(LEAST_SPLIT_BYTES, total_bytes // _MOST_SPLITS, _ROWS_OF_A_SHARD * max_length * _BYTES_PER_TOKEN)
    return min(_MOST_SPLIT_BYTES, wished)


def splits_of(files: Sequence[DataFile], size: int) -> list[Split]:
    """Splits of about `size` bytes, in the order of the files. Raises BadInput for a Parquet file without footer."""
    splits: list[Split] = []
    open_pieces: list[Piece] = []
    room = size
    for piece in (piece for number, file in enumerate(files) for piece in _pieces(number, file, size)):
        if open_pieces and piece.size_bytes > room:
            splits.append(Split(len(splits), tuple(open_pieces)))
            open_pieces, room = [], size
        open_pieces.append(piece)
        room -= piece.size_bytes
    if open_pieces:
        splits.append(Split(len(splits), tuple(open_pieces)))
    return splits


def sample_of(files: Sequence[DataFile], splits: Sequence[Split]) -> Split:
    """A split of small pieces from everywhere, that stands for the whole: 4 MiB of lines, else the middle splits."""
    total = sum(file.size_bytes for file in files)
    if not all(is_cut_by_lines(file) for file in files) or total <= _SAMPLE_BLOCKS * _SAMPLE_BLOCK_BYTES:
        chosen = sorted({len(splits) * i // 4 for i in range(4)})
        return Split(-1, tuple(piece for i in chosen for piece in splits[i].pieces))
    starts = [0]
    for file in files:
        starts.append(starts[-1] + file.size_bytes)
    pieces = []
    for block in range(_SAMPLE_BLOCKS):
        place = (total - _SAMPLE_BLOCK_BYTES) * block // (_SAMPLE_BLOCKS - 1)
        number = next(i for i in range(len(files)) if starts[i + 1] > place)
        begin = place - starts[number]
        end = min(begin + _SAMPLE_BLOCK_BYTES, files[number].size_bytes)
        pieces.append(Piece(number, begin, end, end - begin))
    return Split(-1, tuple(pieces))


def is_cut_by_lines(file: DataFile) -> bool:
    """Whether a file can be read from any byte on."""
    return file.kind in ("jsonl", "text") and not file.compression


def _pieces(number: int, file: DataFile, size: int) -> list[Piece]:
    if is_cut_by_lines(file):
        count = max(1, round(file.size_bytes / size))
        borders = [file.size_bytes * i // count for i in range(count + 1)]
        return [Piece(number, start, end, end - start) for start, end in pairwise(borders)]
    if file.kind == "parquet" and file.size_bytes > size:
        return _row_groups(number, file, size)
    return [Piece(number, 0, 0, file.size_bytes)]


def _row_groups(number: int, file: DataFile, size: int) -> list[Piece]:
    metadata = parquet_file(file).metadata
    sizes = [sum(_column_bytes(metadata, group, c) for c in range(metadata.num_columns)) for group in range(metadata.num_row_groups)]
    pieces, start, held = [], 0, 0
    for group, here in enumerate(sizes):
        if held and held + here > size:
            pieces.append(Piece(number, start, group, held))
            start, held = group, 0
        held += here
    if start < len(sizes):
        pieces.append(Piece(number, start, len(sizes), held))
    return pieces


def _column_bytes(metadata: object, group: int, column: int) -> int:
    return int(metadata.row_group(group).column(column).total_compressed_size)  # type: ignore[attr-defined]
