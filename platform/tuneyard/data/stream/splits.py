"""Cuts a data set into splits, from its listing alone. A split is the unit in which rows are built, shuffled and assigned.

Lines of an uncompressed file are cut anywhere, Parquet by row groups. Compressed lines, CSV and Arrow are cut by places in their
decompressed content, and read from their front (`forward`). The size of a compressed file is estimated, so its last pieces may be empty.
JSON arrays stay whole. Small files share a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuneyard.data.file_types import DataFile
from tuneyard.data.records import parquet_file
from tuneyard.data.stream.extents import Extent, extents
from tuneyard.data.stream.forward import OPEN_END
from tuneyard.data.stream.split_order import Sequences

LEAST_SPLIT_BYTES = 512 << 10
_MOST_SPLIT_BYTES = 64 << 20
_MOST_SPLITS = 20_000
_ROWS_OF_A_SHARD = 64
"""Minimum number of full rows of a shard. Packing each shard by itself then wastes about half a row of 64."""
_BYTES_PER_TOKEN = 4
_SAMPLE_BLOCKS, _SAMPLE_BLOCK_BYTES, _LEAST_BLOCK_BYTES = 64, 64 << 10, 16 << 10
_SAMPLE_SPLITS, _FEWEST_SPLITS = 4, 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file. Of Parquet: row groups [start, end). Of others: rows whose first decompressed byte is in [start, end).

    `end` 0: all rows. `size_bytes`: estimated decompressed bytes.
    """

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
    """Source bytes of a split: 512 KiB, more for long rows and for more than 10 GB, at most 64 MiB."""
    wished = max(LEAST_SPLIT_BYTES, total_bytes // _MOST_SPLITS, _ROWS_OF_A_SHARD * max_length * _BYTES_PER_TOKEN)
    return min(_MOST_SPLIT_BYTES, wished)


def splits_of(files: Sequence[DataFile], size: int) -> list[Split]:
    """Splits of about `size` bytes, in the order of the files. Raises BadInput for a Parquet file without footer, and as `extents` does."""
    sizes = extents(files, size)
    if any(is_read_forward(file) for file in files):
        size = min(_MOST_SPLIT_BYTES, max(size, sum(each.size_bytes for each in sizes) // _MOST_SPLITS))
    splits: list[Split] = []
    open_pieces: list[Piece] = []
    room = size
    for piece in (piece for number, file in enumerate(files) for piece in _pieces(number, file, size, sizes[number])):
        alone = piece.end > 0 and is_read_forward(files[piece.file])
        if open_pieces and (alone or piece.size_bytes > room):
            splits.append(Split(len(splits), tuple(open_pieces)))
            open_pieces, room = [], size
        if alone:
            splits.append(Split(len(splits), (piece,)))
            continue
        open_pieces.append(piece)
        room -= piece.size_bytes
    if open_pieces:
        splits.append(Split(len(splits), tuple(open_pieces)))
    return splits


def sequences_of(files: Sequence[DataFile], splits: Sequence[Split]) -> Sequences | None:
    """The runs of splits that are pieces of one file without random access. None: there is no such file."""
    runs: list[tuple[int, int]] = []
    size = 0
    for split in splits:
        if not _is_forward(files, split):
            continue
        size += split.size_bytes
        if split.pieces[0].start == 0:
            runs.append((split.number, 1))
        else:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
    return Sequences.of(runs, size)


def sample_of(files: Sequence[DataFile], splits: Sequence[Split], among: int = 1) -> Split:
    """A split that stands for the whole: 4 MiB of lines in small, evenly spread pieces, else four splits.

    Of a file without random access, the first splits are used. `among`: data sets of which samples are read; each sample is smaller then,
    down to a fourth of the lines, or two splits.
    """
    total, block_bytes = sum(file.size_bytes for file in files), max(_LEAST_BLOCK_BYTES, _SAMPLE_BLOCK_BYTES // among)
    if not all(is_cut_by_lines(file) for file in files) or total <= _SAMPLE_BLOCKS * block_bytes:
        middle = _middle_splits(files, splits, max(_FEWEST_SPLITS, _SAMPLE_SPLITS // among))
        return Split(-1, tuple(piece for split in middle for piece in split.pieces))
    starts = [0]
    for file in files:
        starts.append(starts[-1] + file.size_bytes)
    pieces = []
    for block in range(_SAMPLE_BLOCKS):
        place = (total - block_bytes) * block // (_SAMPLE_BLOCKS - 1)
        number = next(i for i in range(len(files)) if starts[i + 1] > place)
        begin = place - starts[number]
        end = min(begin + block_bytes, files[number].size_bytes)
        pieces.append(Piece(number, begin, end, end - begin))
    return Split(-1, tuple(pieces))


def is_cut_by_lines(file: DataFile) -> bool:
    """Whether lines of a file can be read from any byte on."""
    return file.kind in ("jsonl", "text") and not file.compression


def is_read_forward(file: DataFile) -> bool:
    """Whether a file is read row by row from its front.

    Local Arrow files have random access, but are read so too: the order of rows is then the same as for a copy in a bucket.
    """
    return file.kind in ("csv", "arrow") or (file.kind in ("jsonl", "text") and bool(file.compression))


def _is_forward(files: Sequence[DataFile], split: Split) -> bool:
    return split.pieces[0].end > 0 and is_read_forward(files[split.pieces[0].file])


def _middle_splits(files: Sequence[DataFile], splits: Sequence[Split], count: int) -> list[Split]:
    chosen: dict[int, Split] = {}
    for number in sorted({len(splits) * i // count for i in range(count)}):
        if _is_forward(files, splits[number]):
            file = splits[number].pieces[0].file
            while splits[number].pieces[0].start > 0:
                number -= 1
            while number in chosen and splits[number + 1].pieces[0].file == file:
                number += 1
        chosen[number] = splits[number]
    return [chosen[number] for number in sorted(chosen)]


def _pieces(number: int, file: DataFile, size: int, extent: Extent) -> list[Piece]:
    if is_cut_by_lines(file):
        count = max(1, round(file.size_bytes / size))
        borders = [file.size_bytes * i // count for i in range(count + 1)]
        return [Piece(number, start, end, end - start) for start, end in pairwise(borders)]
    if file.kind == "parquet" and file.size_bytes > size:
        return _row_groups(number, file, size)
    if is_read_forward(file) and extent.bound > size:
        starts = range(0, extent.bound, size)
        sizes = [max(0, min(size, extent.size_bytes - start)) for start in starts]
        ends = [*starts[1:], OPEN_END]
        return [Piece(number, start, end, held) for start, end, held in zip(starts, ends, sizes, strict=True)]
    return [Piece(number, 0, 0, extent.size_bytes)]


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
