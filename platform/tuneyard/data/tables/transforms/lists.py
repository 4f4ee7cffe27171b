"""Lists of numbers as numpy buffers, the input of the kernels.

All kernels follow one rule: a null list stays null, and a null inside a list is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lists:
    """Row i is `values[offsets[i]:offsets[i + 1]]`; `offsets[0]` is 0. `valid` is None where no row is null; null rows are empty."""

    values: npt.NDArray[Any]
    offsets: Offsets
    valid: npt.NDArray[np.bool_] | None

    @classmethod
    def of(cls, array: pa.Array) -> Lists:
        """From a list array of numbers. Buffers are shared where no null is dropped."""
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
        values = array.flatten()
        if values.null_count:
            kept = values.is_valid().to_numpy(zero_copy_only=False)
            lengths = np.diff(np.concatenate([[0], np.cumsum(kept)])[starts_of(lengths)])
            values = values.drop_null()
        return cls(values.to_numpy(zero_copy_only=False), starts_of(lengths), valid)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    @property
    def rows(self) -> Offsets:
        """The row of each value."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    @property
    def positions(self) -> Offsets:
        """The position of each value in its list."""
        return np.arange(len(self.values), dtype=np.int64) - np.repeat(self.offsets[:-1], self.lengths)

    def with_values(self, values: npt.NDArray[Any]) -> Lists:
        """The same lengths with other values."""
        return replace(self, values=values)

    def kept(self, mask: npt.NDArray[np.bool_]) -> Lists:
        """The values under the mask."""
        before = np.concatenate([[0], np.cumsum(mask)])
        return replace(self, values=self.values[mask], offsets=before[self.offsets])

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """A list array with items of this type."""
        presence = pa.py_buffer(np.packbits(self.valid, bitorder="little")) if self.valid is not None else None
        items = pa.array(self.values, kind)
        return pa.Array.from_buffers(pa.list_(kind), len(self), [presence, pa.py_buffer(self.offsets.astype(np.int32))], children=[items])


def starts_of(lengths: npt.NDArray[Any]) -> Offsets:
    """Offsets of lists with these lengths."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def item_type(kind: pa.DataType) -> pa.DataType:
    """The item type of a list; for any other type, the type itself."""
    return kind.value_type if is_list(kind) else kind
