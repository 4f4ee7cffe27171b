"""Rows of a feature log as Arrow columns: `{"age": 31, "ids": [4, 9], "float_features": {"12": 0.5}}`.

Whole numbers become int64, others double. An object becomes a map if its keys are whole numbers, else a struct. A missing value is null.
Types follow from the values of the batch, unless a schema is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by

_WHOLE = re.compile(r"-?\d{1,18}")


def columns_of(rows: Sequence[Mapping[str, Any]], places: Sequence[str], schema: pa.Schema | None) -> pa.Table:
    """A table of these rows. `places`: names of rows for people. Raises BadInput, with column and row, for a value of another type."""
    values: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if name not in values:
                values[name] = [None] * len(rows)
            values[name][number] = value
    arrays = {}
    for name, column in values.items():
        index = schema.get_field_index(name) if schema is not None else -1
        kind = schema.field(index).type if schema is not None and index >= 0 else None
        try:
            arrays[name] = _array(column, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _misfit(name, column, places, kind, error) from error
    return pa.table(arrays)


def _array(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    is_map = pa.types.is_map(kind) if kind is not None else _are_maps(values)
    if not is_map:
        return pa.array(values, kind)
    pairs = [None if value is None else [(_key(key, kind), item) for key, item in value.items()] for value in values]
    if kind is not None:
        return pa.array(pairs, kind)
    items = pa.array([item for row in pairs if row for _, item in row])
    return pa.array(pairs, pa.map_(pa.int64(), items.type))


def _are_maps(values: Iterable[Any]) -> bool:
    found = [value for value in values if value is not None]
    if not found or not all(isinstance(value, Mapping) for value in found):
        return False
    return all(_WHOLE.fullmatch(key) if isinstance(key, str) else type(key) is int for value in found for key in value)


def _key(key: Any, kind: pa.DataType | None) -> Any:
    return int(key) if kind is None or pa.types.is_integer(kind.key_type) else key


def is_untyped(kind: pa.DataType) -> bool:
    """Whether a type comes from nulls, empty lists and empty maps alone. Another batch will give the real type."""
    if pa.types.is_list(kind):
        return is_untyped(kind.value_type)
    return bool(pa.types.is_null(kind)) or (pa.types.is_map(kind) and is_untyped(kind.item_type))


def typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of nulls, empty lists and empty maps alone, converted to the type `kind`."""
    return pa.nulls(len(array), kind) if pa.types.is_null(array.type) or pa.types.is_null(kind) else pa.array(array.to_pylist(), kind)


def _misfit(name: str, values: Sequence[Any], places: Sequence[str], kind: pa.DataType | None, error: Exception) -> BadInput:
    """The error for the first row whose value does not fit the values before it, found by bisection."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _array(values[:middle], kind)
            low = middle
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            high = middle
    shown = repr(values[high - 1])[:60]
    wanted = f" as {kind}" if kind is not None else ""
    return BadInput(
        f"{places[high - 1]}: feature {name!r}: {shown} cannot be stored{wanted}: {said_by(error, at_most=160)}",
        "give each feature one type, or name its type: schema=pa.schema([(name, type)])",
    )
