"""How well streamed rows are shuffled, on data sorted by class: beside a full permutation, and a shuffle buffer over shuffled splits.

`python benchmarks/shuffle_quality.py`: pure, from the order alone. Writes docs/benchmarks/shuffle_quality.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.training_cases import write_page

from tuneyard.data.stream.split_order import Sequences
from tuneyard.data.stream.splits import LEAST_SPLIT_BYTES
from tuneyard.data.stream.windows import Place, Windows

CLASSES = 10
BATCH = 256
BUFFER = 10_000
_CUT_SPLITS = 8_000
Rows = npt.NDArray[np.int64]


def streamed(splits: int, rows: int, epoch: int, files: int = 0) -> Rows:
    """The rows of an epoch in Tuneyard's order; a split has `rows` of them. `files`: that can only be read from their front."""
    borders = [splits * number // files for number in range(files + 1)] if files else []
    sequences = Sequences.of([(start, end - start) for start, end in pairwise(borders)], splits * LEAST_SPLIT_BYTES)
    windows = Windows.over([LEAST_SPLIT_BYTES] * splits, seed=1, shuffle=True, sequences=sequences)
    place, found = Place(epoch, 0), []
    while place.epoch == epoch:
        numbers = windows.splits_at(place)
        starts = np.arange(len(numbers) + 1) * rows
        which, row = windows.rows_at(place, starts, np.arange(starts[-1]))
        found.append(np.asarray(numbers)[which] * rows + row)
        place = windows.after(place)
    return np.concatenate(found)


def buffered(splits: int, rows: int, random: np.random.Generator) -> Rows:
    """Splits shuffled, then a buffer of BUFFER rows that gives one at random for each that comes (datasets' and tf.data's way)."""
    coming = np.concatenate([np.arange(split * rows, (split + 1) * rows) for split in random.permutation(splits)])
    held, found = [*coming[:BUFFER]], []
    for row in coming[BUFFER:]:
        place = int(random.integers(len(held)))
        found.append(held[place])
        held[place] = row
    return np.asarray([*found, *random.permutation(held)])


def distance(order: Rows) -> float:
    """Mean total-variation distance between the classes of a batch and those of all rows (0: the same shares)."""
    classes = order * CLASSES // len(order)
    shares = [np.bincount(batch, minlength=CLASSES) / len(batch) for batch in _batches(classes)]
    return float(np.mean([np.abs(share - 1 / CLASSES).sum() / 2 for share in shares]))


def _batches(values: Rows) -> Iterator[Rows]:
    return (values[start : start + BATCH] for start in range(0, len(values) - BATCH + 1, BATCH))


def near(order: Rows, rows: int) -> float:
    """Share of neighbours in the order that lie in the same split."""
    splits = order // rows
    return float((splits[1:] == splits[:-1]).mean())


def moved(order: Rows) -> float:
    """Mean way of a row from its place in the files, as a share of the rows (1/3 in a full permutation)."""
    return float(np.abs(order - np.arange(len(order))).mean() / len(order))


def main() -> None:
    random = np.random.default_rng(0)
    table = []
    for splits, rows in ((_CUT_SPLITS, 64), (160, 64), (64, 64)):
        count = splits * rows
        orders = {
            "full permutation": random.permutation(count),
            "**Tuneyard**, first epoch": streamed(splits, rows, 0),
            "**Tuneyard**, later epochs": streamed(splits, rows, 1),
            f"shuffled splits, buffer of {BUFFER:,}": buffered(splits, rows, random),
            "as the files lie": np.arange(count),
        }
        if splits == _CUT_SPLITS:
            for files in (1, 16, 400):
                orders[f"**Tuneyard**, {files} compressed file{'s' * (files > 1)}"] = streamed(splits, rows, 1, files)
        for order in orders.values():
            assert len(np.unique(order)) == count
        table += [f"| {splits:,} | {name} | {distance(o):.3f} | {near(o, rows):.4f} | {moved(o):.3f} |" for name, o in orders.items()]
    lines = [
        f"Rows are sorted by class, {CLASSES} classes in blocks. Distance: between the classes of a batch of {BATCH} and of all rows,",
        "mean total variation; sampling alone gives that of the full permutation. Same split: share of neighbours in the order that",
        "come from one split. Moved: mean way of a row, as a share of all. Compressed files are read from their front, as are CSV",
        "and Arrow: the order of their splits stays, and only files are mixed.",
        "",
        "| splits of 64 rows | order | distance | same split | moved |",
        "|---:|---|---:|---:|---:|",
        *table,
    ]
    write_page("shuffle_quality", "How well streamed rows are shuffled", lines)


if __name__ == "__main__":
    main()
