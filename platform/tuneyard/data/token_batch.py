"""A micro-batch of rows of tokens as matrices, filled directly from the mapped files: one copy from the disk's pages to the model's input.

Data sets return it for a list of row numbers (`__getitems__`, which torch's DataLoader calls if defined). It is also a sequence of rows, so
that it can be used as a list of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
IGNORED = -100


class RowParts(NamedTuple):
    """One row as views into its file, without copies."""

    ids: npt.NDArray[Any]
    """Tokens, of any integer type."""
    labels: npt.NDArray[Any]
    """Labels; or booleans, True where the label is the token itself and False where the token has no label."""
    position_ids: npt.NDArray[Any] | None = None
    samples: npt.NDArray[Any] | None = None
    """Number of tokens of each sample in a packed row. A packed row has either this or `position_ids`."""


@dataclass(frozen=True)
class TokenBatch(Sequence[Mapping[str, Any]]):
    """`input_ids`, `labels` and (packed rows) `position_ids`: [rows, longest row], int64. `lengths`: tokens of each row.

    Padding after the end of a row: token 0, label -100, position 0.
    """

    input_ids: Ints
    labels: Ints
    position_ids: Ints | None
    lengths: Ints

    @classmethod
    def of_parts(cls, rows: Sequence[RowParts]) -> TokenBatch:
        """Copy rows into matrices."""
        sizes = [len(row.ids) for row in rows]
        width = max(sizes, default=0)
        as_mask = rows[0].labels.dtype == np.bool_
        ids = np.zeros((len(rows), width), np.int64)
        labels: npt.NDArray[Any] = np.zeros(ids.shape, np.bool_) if as_mask else np.full(ids.shape, IGNORED)
        for size, row, row_ids, row_labels in zip(sizes, rows, ids, labels, strict=True):
            if size == width:
                row_ids[:], row_labels[:] = row.ids, row.labels
            else:
                row_ids[:size], row_labels[:size] = row.ids, row.labels
        if as_mask:
            labels = np.where(labels, ids, IGNORED)
        return cls(ids, labels, _position_ids(rows, sizes, width), np.array(sizes, dtype=np.int64))

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> TokenBatch:
        """Copy rows that are dictionaries of sequences: `input_ids`, `labels`, and `position_ids` where they are packed."""
        lengths = np.fromiter((len(row["input_ids"]) for row in rows), np.int64, len(rows))
        names = {"input_ids": 0, "labels": IGNORED, **({"position_ids": 0} if "position_ids" in rows[0] else {})}
        filled = {name: np.full((len(rows), int(lengths.max(initial=0))), value) for name, value in names.items()}
        for name, matrix in filled.items():
            for number, row in enumerate(rows):
                matrix[number, : lengths[number]] = row[name]
        return cls(filled["input_ids"], filled["labels"], filled.get("position_ids"), lengths)

    @classmethod
    def merged(cls, batches: Iterable[tuple[Ints, TokenBatch]], count: int) -> TokenBatch:
        """`count` rows from several batches, each with the numbers of its rows in the result."""
        given = list(batches)
        if len(given) == 1:
            return given[0][1]
        width = max(batch.input_ids.shape[1] for _, batch in given)
        packed = given[0][1].position_ids is not None
        ids, labels = np.zeros((count, width), np.int64), np.full((count, width), IGNORED)
        positions = np.zeros((count, width), np.int64) if packed else None
        lengths = np.zeros(count, np.int64)
        for numbers, batch in given:
            here = batch.input_ids.shape[1]
            ids[numbers, :here], labels[numbers, :here], lengths[numbers] = batch.input_ids, batch.labels, batch.lengths
            if positions is not None:
                positions[numbers, :here] = batch.position_ids
        return cls(ids, labels, positions, lengths)

    def widened(self, width: int) -> TokenBatch:
        """The same rows, padded to at least `width` tokens."""
        more = ((0, 0), (0, max(0, width - self.input_ids.shape[1])))
        positions = None if self.position_ids is None else np.pad(self.position_ids, more)
        return TokenBatch(np.pad(self.input_ids, more), np.pad(self.labels, more, constant_values=IGNORED), positions, self.lengths)

    def short_rows(self) -> list[tuple[int, int]]:
        """Rows that are shorter than the longest row, each with its length."""
        width = self.input_ids.shape[1]
        return [(row, length) for row, length in enumerate(self.lengths.tolist()) if length < width]

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, number: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, number: int | slice) -> Any:
        """A row of numpy arrays, as in prepared data: input_ids, labels and length, and position_ids where samples are packed."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        length = int(self.lengths[number])
        row: dict[str, Any] = {"input_ids": self.input_ids[number, :length], "labels": self.labels[number, :length], "length": length}
        if self.position_ids is not None:
            row["position_ids"] = self.position_ids[number, :length]
        return row


def _position_ids(rows: Sequence[RowParts], sizes: Sequence[int], width: int) -> Ints | None:
    """Positions that restart at 0 with each sample; None: rows are not packed."""
    if rows[0].samples is not None:
        return _counted_up([row.samples for row in rows], sizes, width)
    if rows[0].position_ids is None:
        return None
    found = np.zeros((len(rows), width), np.int64)
    for size, row, positions in zip(sizes, rows, found, strict=True):
        assert row.position_ids is not None
        positions[:size] = row.position_ids
    return found


def _counted_up(samples: Sequence[Any], sizes: Sequence[int], width: int) -> Ints:
    spans: list[Any] = []
    for of_row, size in zip(samples, sizes, strict=True):
        spans.append(of_row)
        if size < width:
            spans.append((width - size,))  # padding counts as one more sample
    flat = np.concatenate(spans, dtype=np.int64)
    places = np.arange(len(sizes) * width)
    places -= (flat.cumsum() - flat).repeat(flat)
    found = places.reshape(len(sizes), width)
    for size, row in zip(sizes, found, strict=True):
        if size < width:
            row[size:] = 0
    return found
