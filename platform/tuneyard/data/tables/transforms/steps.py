"""The base of every transformation: name, inputs, output, parameters, output type and kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from tuneyard.data.tables.transforms.lists import Lists, is_list


class Step(BaseModel):
    """One transformation. `output`: a new feature, or the name of a feature to replace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: tuple[str, ...] = Field(min_length=1)
    output: str = Field(min_length=1)

    takes: ClassVar[int] = 1
    """Number of inputs, or the least number."""
    most: ClassVar[int | None] = None
    """Largest number of inputs; None: `takes`."""
    skips_nulls: ClassVar[bool] = False
    """Whether a column without any value, which has no type, is left out of the inputs; otherwise it makes the output null."""

    @abstractmethod
    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        """The type of the output for inputs of these types. Raises ValueError with a reason for people where types do not fit."""

    @abstractmethod
    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """The output for a batch."""


def need(kind: pa.DataType, wanted: str, ok: bool) -> None:
    """Raise ValueError where a type does not fit."""
    if not ok:
        raise ValueError(f"it takes {wanted}, this is {kind}")


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_id(kind: pa.DataType) -> bool:
    """Whether a type is whole numbers or texts, which may be dictionary-encoded."""
    return bool(pa.types.is_integer(kind) or is_text(kind))


def is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


def settled(kind: pa.DataType) -> pa.DataType:
    """The type; lists without an item type become lists of whole numbers: in all files they are empty or hold nulls."""
    return pa.list_(pa.int64()) if is_list(kind) and pa.types.is_null(kind.value_type) else kind


def like(kind: pa.DataType, item: pa.DataType) -> pa.DataType:
    """`item`, or a list of it where `kind` is a list."""
    return pa.list_(item) if is_list(kind) else item


def each(array: pa.Array, item: pa.DataType, kernel: Any) -> pa.Array:
    """Run a numpy kernel over all values of a column of numbers or lists; nulls stay null."""
    if is_list(array.type):
        lists = Lists.of(array)
        return lists.with_values(kernel(lists.values)).to_arrow(item)
    return with_nulls(kernel(numbers(array)), array, item)


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Values of a column of numbers or texts, with 0 in place of null."""
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return np.asarray(pc.fill_null(array, pa.scalar(0, array.type)).to_numpy(zero_copy_only=False))


def with_nulls(values: npt.NDArray[Any], source: pa.Array, kind: pa.DataType) -> pa.Array:
    """`values` with null where `source` has it."""
    return pa.array(values, kind, mask=source.is_null().to_numpy(zero_copy_only=False) if source.null_count else None)
