"""The number and the lengths of a data set's samples, without tokenising it. A small set is read whole, a large one by a sample.

Up to 32 MiB everything is read. Parquet and Arrow files state their number of rows. Of other files, blocks that are spread evenly over
them are read: the bytes per line and their spread between blocks give the number of lines with its 95 % interval (a ratio estimate over
clusters: Cochran 1977, Sampling Techniques, 6.1). Compressed files are read from the front; their first part stands for the rest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from tuneyard.api import TrainData, TrainTask
from tuneyard.catalog.cpu import usable_cores
from tuneyard.data.access import reading
from tuneyard.data.decompression import decompressed
from tuneyard.data.file_types import COMPRESSED_ENDINGS, DataFile
from tuneyard.data.measure import sample_size
from tuneyard.data.probe import Probe
from tuneyard.data.records import arrow_batches, parquet_file
from tuneyard.data.samples import Placed, Tally, training_samples
from tuneyard.data.shown import plain_pieces
from tuneyard.data.sources import Located, locate
from tuneyard.data.ways import expects_stream
from tuneyard.planning import DataCount, Interval

READ_WHOLE_BYTES = 32 << 20
"""A data set up to this size is read whole, in a second or two."""
_LOOKED_AT = 20_000
"""Samples of a larger set whose lengths stand for all."""
_BLOCKS, _BLOCK_BYTES = 64, 256 << 10
_TOKENISED = 256
USUAL_CHARACTERS = Interval(4.0, 3.0, 5.0)
"""Characters per token of English text and of code, with vocabularies of 32,000 to 260,000 tokens."""
_COMPRESSED_SPREAD = 0.3
"""Relative difference between the first part of a compressed file and the rest: an assumption."""
_Z = 1.96


def count_data(task: TrainTask, *, tokenizer: Path | None = None, probed: Probe | None = None) -> DataCount:
    """Count the training data of a task whose `data.source` is resolved. `probed`: what its rows are in tokens. `tokenizer`: a
    tokenizer.json, for characters per token where there is no probe.

    Raises BadInput (no file, no sample that can be trained on), StorageError (source not reachable).
    """
    data = task.data
    assert data.source is not None
    located = locate(data.source, file_type=data.file_type, split=data.split, sheet=data.sheet)
    tally = Tally(located.uri, data.max_bad_fraction)
    whole = located.size_bytes <= READ_WHOLE_BYTES or any(file.kind in ("json", "excel") for file in located.files)
    roles, samples = training_samples(located, tally, source=data, spec=data, objective=task.objective)
    texts = _Texts()
    for placed in samples if whole else islice(samples, _LOOKED_AT):
        texts.add(placed)
    tally.check()
    complete = whole or tally.good < _LOOKED_AT or data.limit == tally.good
    good = tally.good / (tally.good + tally.bad + tally.left_out)
    found = Interval.exactly(tally.good) if complete else _rows(located).times(good)
    if data.limit is not None:
        found = Interval(*(min(value, data.limit) for value in (found.likely, found.low, found.high)))
    ratio = characters_per_token(texts.spread(), tokenizer) if tokenizer is not None and probed is None else None
    overhead, kept = 0.0, 1.0
    if probed is not None and probed.tokens:
        overhead, ratio = _fitted(probed.sizes, probed.tokens)
        kept = _kept(data, probed)
    return DataCount(
        samples=found.times(kept),
        characters=sorted(texts.sizes)[: max(1, round(kept * len(texts.sizes)))],
        characters_per_token=ratio or USUAL_CHARACTERS,
        assumed_tokens=ratio is None,
        overhead_tokens=overhead,
        splits=roles.format == "text" and data.overlong == "truncate",
        streamed=expects_stream(data, located.size_bytes, steps=task.steps, cores=usable_cores()),
        format=roles.format,
        files=kind_name(located.files[0]),
    )


def kind_name(file: DataFile) -> str:
    """The type of a file in the notation of endings: `jsonl`, `jsonl.gz`, `parquet`."""
    return file.kind + next((ending for ending, compression in COMPRESSED_ENDINGS.items() if compression == file.compression), "")


class _Texts:
    """Sizes of all samples of a stream, and the texts of an even selection."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._kept: list[str] = []
        self._every = 1

    def add(self, placed: Placed) -> None:
        if len(self.sizes) % self._every == 0:
            self._kept.append("".join(piece.text for piece in plain_pieces(placed.sample)))
        self.sizes.append(sample_size(placed.sample))
        if len(self._kept) > 2 * _TOKENISED:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def spread(self) -> Sequence[str]:
        """The selected texts, evenly spread over all samples."""
        return self._kept


def _kept(data: TrainData, probed: Probe) -> float:
    """The share of samples that training keeps. Those without a token to learn from, or too long for `overlong: drop`, are left out; they
    are taken to be the longest.
    """
    needed = probed.tokens if data.overlong == "drop" else probed.needed
    if data.overlong == "truncate" and data.pack and probed.format == "text":
        return 1.0
    return max(1, sum(tokens <= data.max_length for tokens in needed)) / len(needed)


def _fitted(sizes: Sequence[int], tokens: Sequence[int]) -> tuple[float, Interval]:
    """Tokens of a sample as a line over its characters: tokens without any, and characters per further token. A least-squares line keeps
    the sum of the tokens of the rows that were looked at, and so that of all rows, whichever share of them has tools or a system turn.
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
    if slope <= 0:  # all samples have one size, or sizes say nothing of tokens
        slope = 1e-9
    overhead = float(y.mean() - slope * x.mean())
    off = y - overhead - slope * x
    error = min(0.5, _Z * float(np.sqrt((off**2).sum() / max(1, len(y) - 2) / len(y))) / float(y.mean()))
    return overhead, Interval(1 / slope, 1 / slope / (1 + error), 1 / slope / (1 - error))


def characters_per_token(texts: Sequence[str], tokenizer: Path) -> Interval | None:
    """The ratio over these texts; None where the file is not a readable tokenizer."""
    try:
        from tokenizers import Tokenizer

        encoded = Tokenizer.from_file(str(tokenizer)).encode_batch(list(texts), add_special_tokens=False)
    except Exception:  # noqa: BLE001 - the library raises Exception itself; the caller then assumes the usual figure and reports that
        return None
    ratios = [len(text) / len(each.ids) for text, each in zip(texts, encoded, strict=True) if each.ids]
    if not ratios:
        return None
    whole = sum(map(len, texts)) / sum(len(each.ids) for each in encoded)
    spread = _Z * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    return Interval(whole, max(0.1, whole - spread), whole + spread)


def _rows(located: Located) -> Interval:
    """Rows of all files, good or bad."""
    with reading(located.uri):
        parts = [_file_rows(file) for file in located.files if file.kind in ("parquet", "arrow")]
        lines = [file for file in located.files if file.kind not in ("parquet", "arrow")]
        parts += [_line_rows([file for file in lines if not file.compression])] if any(not file.compression for file in lines) else []
        parts += [_compressed_rows(file) for file in lines if file.compression]
    return Interval(sum(each.likely for each in parts), sum(each.low for each in parts), sum(each.high for each in parts))


def _file_rows(file: DataFile) -> Interval:
    if file.kind == "parquet":
        return Interval.exactly(parquet_file(file).metadata.num_rows)
    return Interval.exactly(sum(batch.num_rows for batch in arrow_batches(file)))


def _line_rows(files: Sequence[DataFile]) -> Interval:
    """The estimated number of lines, from blocks that are spread evenly over the bytes of all files."""
    total = sum(file.size_bytes for file in files)
    blocks = [_lines_of(block) for block in _spread_blocks(files, total)]
    counted = [(lines, size) for lines, size in blocks if lines]
    if not counted:  # every line is longer than a block
        return Interval(len(files), 1.0, total / _BLOCK_BYTES)
    lines, size = sum(each[0] for each in counted), sum(each[1] for each in counted)
    rate = lines / size
    likely = total * rate
    if len(counted) < 2:
        return Interval(likely, likely / 2, likely * 2)
    mean_size = size / len(counted)
    off = sum((each_lines - rate * each_size) ** 2 for each_lines, each_size in counted) / (len(counted) - 1)
    error = _Z * total * math.sqrt(off / len(counted)) / mean_size
    return Interval(likely, max(lines, likely - error), likely + error)


def _spread_blocks(files: Sequence[DataFile], total: int) -> Iterator[bytes]:
    starts = [int(total * (i + 0.5) / _BLOCKS) for i in range(_BLOCKS)]
    before = 0
    for file in files:
        here = [start - before for start in starts if before <= start < before + file.size_bytes]
        before += file.size_bytes
        if here:
            with file.open_raw() as stream:
                for start in here:
                    stream.seek(min(start, max(0, file.size_bytes - _BLOCK_BYTES)))
                    yield stream.read(_BLOCK_BYTES)


def _lines_of(block: bytes) -> tuple[int, int]:
    """Number of whole, non-empty lines of a block, and the bytes from the first line's end to the last line's end."""
    first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
    inside = block[first:last]
    return sum(1 for line in inside.split(b"\n") if line.strip()), len(inside)


def _compressed_rows(file: DataFile) -> Interval:
    raw = file.open_raw()
    with raw, decompressed(raw, file.compression) as stream:
        lines = 0
        for block in _blocks(stream, READ_WHOLE_BYTES):
            lines += block.count(b"\n")
        likely = lines * max(1.0, file.size_bytes / max(1, raw.tell()))
    return Interval(likely, max(float(lines), likely * (1 - _COMPRESSED_SPREAD)), likely * (1 + _COMPRESSED_SPREAD))


def _blocks(stream: IO[bytes], most: int) -> Iterable[bytes]:
    read = 0
    while read < most and (block := stream.read(1 << 20)):
        read += len(block)
        yield block
