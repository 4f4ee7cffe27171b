"""Requirements on a column that serves as a feature or label of a ranker, checked by its type alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.tables import Table
from tuneyard.data.tables.features import layout


def check_numbers(kind: pa.DataType, name: str) -> None:
    """Raises BadInput unless a column of this type holds numbers, or only nulls."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return
    remedy = "name it among the sparse features" if holds_ids(kind) else _OTHER_TYPES
    raise BadInput(f"column {name} has values of type {kind}, and not numbers", f"{remedy}, or leave it out")


def check_ids(kind: pa.DataType, name: str, *, texts: bool | None = None) -> None:
    """Raises BadInput unless a column of this type holds ids or texts, lists of them, or only nulls.

    `texts`: whether the ranker was trained on texts or ids, if known.
    """
    value = kind.value_type if is_list(kind) else kind
    if not holds_ids(kind):
        number = pa.types.is_floating(value) and value is kind
        remedy = "name numbers among the dense features" if number else f"{_OTHER_TYPES}, or leave it out"
        raise BadInput(f"sparse column {name} holds {value}, and neither ids nor texts", remedy)
    if texts is not None and not pa.types.is_null(value) and is_text(value) is not texts:
        seen, here = ("texts", "ids") if texts else ("ids", "texts")
        raise BadInput(
            f"sparse column {name} holds {here}, and the ranker knows it as {seen}", f"cast the column to {seen}, as it was in training"
        )


_OTHER_TYPES = "cast it: decimals to double, times to numbers such as the hour or the day, fields of structs to columns of their own"


def holds_ids(kind: pa.DataType) -> bool:
    """True for ids and texts, and for lists of them."""
    value = kind.value_type if is_list(kind) else kind
    return bool(pa.types.is_integer(value) or is_text(value) or pa.types.is_null(value))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """True for texts and bytes, whose hashes are the ids."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(value) for is_kind in texts)


def holds_texts(kind: pa.DataType) -> bool:
    """True for texts, and for lists of them."""
    return is_text(kind.value_type if is_list(kind) else kind)


def lacking(table: Table, names: Sequence[str]) -> list[str]:
    """A sentence for each column that some files of the table lack."""
    said = []
    for name in names:
        without = [file.uri for file in table.files if sum(file.group_rows) and layout([name], file.schema).missing]
        if without:
            said.append(f"{len(without)} of {len(table.files)} files have no column {name}, such as {without[0]}: null there")
    return said
