"""Features of a batch as flat buffers and as torch tensors: values, offsets and presence, without a copy where Arrow's layout allows.

A batch of the reader is flat already: Arrow keeps one buffer of values per column. This module returns these buffers in the form that
`torch.nn.EmbeddingBag` and dense layers take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tuneyard.api import BadInput


@dataclass(frozen=True)
class Flat:
    """One feature. Row i of a list feature is `values[offsets[i]:offsets[i + 1]]`; of a dense feature, `values[i]`.

    `offsets` is None for a dense feature. `present` is None where every row has the feature. Absent rows are empty lists, or 0.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[Any] | None
    present: npt.NDArray[np.bool_] | None

    def tensors(self) -> tuple[Any, Any]:
        """(values, offsets) for `EmbeddingBag(include_last_offset=True)`; (values, presence or None) for a dense feature.

        The tensors share memory with the batch, and must not be written to.
        """
        second = self.present if self.offsets is None else self.offsets
        return _tensor(self.values), None if second is None else _tensor(second)


def flat(batch: pa.RecordBatch, feature: str) -> Flat:
    """The buffers of one feature of a batch.

    Offsets start at 0. Where the batch is a later slice of its row group, they are rebased, which copies 4 bytes per row. Raises BadInput
    for a feature that is neither numbers nor lists of numbers, and for nulls inside lists.
    """
    index = batch.schema.get_field_index(feature)
    if index < 0:
        raise BadInput(f"the batch has no feature {feature!r}", "name it in the projection")
    array = batch.column(index)
    present = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return Flat(_numbers(array, feature), None, present)
    offsets, child = array.offsets.to_numpy(), array.values
    if present is not None and np.diff(offsets)[~present].any():  # Arrow allows values under a null; they belong to no row
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets, child = np.concatenate([[0], np.cumsum(lengths)]).astype(offsets.dtype), array.flatten()
    values = child.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if values.null_count:
        raise BadInput(
            f"feature {feature!r}: {values.null_count:,} nulls inside its lists have no place in a tensor",
            "use the output of a transformation, which drops nulls: first_x with a large count does only that",
        )
    return Flat(_numbers(values, feature), offsets if offsets[0] == 0 else offsets - offsets[0], present)


def _numbers(array: pa.Array, feature: str) -> npt.NDArray[Any]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadInput(f"feature {feature!r} is {kind}: tensors hold numbers", "hash texts first: the transformation sigrid_hash")
    dtype = np.dtype(kind.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.empty(len(array), dtype)
    values = np.frombuffer(buffer, dtype, count=array.offset + len(array))[array.offset :]
    # Values under a null are arbitrary; `Flat` promises zeros.
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), values, dtype.type(0)) if array.null_count else values


def _tensor(values: npt.NDArray[Any]) -> Any:
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(values)
