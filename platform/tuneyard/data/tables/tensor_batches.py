"""Batches of a reader as tensors. A row group becomes tensors once, and a batch is a view of them.

Conversion from Arrow to tensors takes some calls per feature, independent of the number of rows. With hundreds of features and batches of
some hundred rows, these calls take several times as long as decoding Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuneyard.data.tables.flat_features import flat
from tuneyard.data.tables.reader import TableReader
from tuneyard.data.tables.rebatching import Cut, Piece, joined

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[Any, Any]
"""Two tensors. List feature: (values, offsets); row i is `values[offsets[i]:offsets[i + 1]]`. Dense feature: (values, presence); presence
is None where the row group lacks no value."""


class TensorBatches:
    """The batches of `reader` as {feature: pair of tensors}, for `EmbeddingBag(include_last_offset=True)` and dense layers.

    The tensors share memory with their row group, and must not be written to. `reader.cursor` is the place after the last batch. Raises
    BadInput as `flat` does.
    """

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader
        self._piece: Piece | None = None
        self._whole: list[tuple[str, bool, Pair]] = []

    def __iter__(self) -> Iterator[dict[str, Pair]]:
        for cuts in self._reader.cuts():
            yield self._part(cuts[0]) if len(cuts) == 1 else {name: pair for name, _, pair in _tensors(joined(cuts))}

    def _part(self, cut: Cut) -> dict[str, Pair]:
        if cut.piece is not self._piece:
            self._piece, self._whole = cut.piece, _tensors(cut.piece.rows)
        start, end = cut.start, cut.start + cut.count
        return {name: (_lists if lists else _dense)(pair, start, end) for name, lists, pair in self._whole}


def _tensors(rows: pa.RecordBatch) -> list[tuple[str, bool, Pair]]:
    """For each feature: its name, whether it is a list feature, and its tensors."""
    features = ((name, flat(rows, name)) for name in rows.schema.names)
    return [(name, feature.offsets is not None, feature.tensors()) for name, feature in features]


def _dense(pair: Pair, start: int, end: int) -> Pair:
    values, present = pair
    return values[start:end], None if present is None else present[start:end]


def _lists(pair: Pair, start: int, end: int) -> Pair:
    values, offsets = pair
    offsets = offsets[start : end + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return values[first:last], offsets - first if first else offsets
