"""Batches of columnar files become rows; cell by cell where a batch holds values that Python cannot represent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_UNREADABLE = (ValueError, OverflowError, LookupError, ImportError, pa.ArrowException)
"""Dates out of Python's range, unknown time zones, bytes that are not UTF-8."""


def rows_of(batch: Any, *, fillers: bool = False) -> Iterator[dict[str, Any] | str]:
    """Each row, or the reason why it is bad.

    A cell that cannot be read counts as missing. Maps become dicts; a map with the same key twice counts as missing.
    Text that is not UTF-8 makes its row bad. `fillers`: keep the nulls that columnar files put into structs.
    """
    nested = [] if fillers else [field.name for field in batch.schema if pa.types.is_nested(field.type)]
    try:
        rows: Iterator[dict[str, Any] | str] = iter(batch.to_pylist(maps_as_pydicts="strict"))
    except _UNREADABLE:
        rows = (_row(batch, number) for number in range(batch.num_rows))
    for values in rows:
        if nested and isinstance(values, dict):
            values = {**values, **{name: without_fillers(values[name]) for name in nested}}
        yield values


def _row(batch: Any, number: int) -> dict[str, Any] | str:
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            found[name] = column[number].as_py(maps_as_pydicts="strict")
        except UnicodeDecodeError as error:
            return f"column {name} is not UTF-8: {error.reason} at byte {error.start + 1} of the text"
        except _UNREADABLE:
            found[name] = None
    return found


def without_fillers(value: Any) -> Any:
    """The value without the nulls that columnar files put into structs for keys of other rows."""
    if isinstance(value, dict):
        return {key: without_fillers(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_fillers(each) for each in value]
    return value
