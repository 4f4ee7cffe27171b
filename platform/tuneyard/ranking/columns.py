"""What a column must be to serve as a feature or label of a ranker, known from its type alone."""

from __future__ import annotations

import pyarrow as pa

from tuneyard.api import BadInput, RankTask
from tuneyard.data.tables import TableReader, open_table


def check_numbers(kind: pa.DataType, name: str) -> None:
    """Raises BadInput unless a column of this type holds numbers, or nothing but nulls."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise BadInput(f"column {name} has values of type {kind}, and not numbers", "name it among the sparse features, or leave it out")


def check_ids(kind: pa.DataType, name: str) -> None:
    """Raises BadInput unless a column of this type holds ids or texts, lists of them, or nothing but nulls."""
    value = kind.value_type if is_list(kind) else kind
    if not (pa.types.is_integer(value) or is_text(value) or pa.types.is_null(value)):
        raise BadInput(f"sparse column {name} holds {value}, and neither ids nor texts", "name numbers among the dense features")


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """True for texts and bytes, which count as ids by their hash."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(value) for is_kind in texts)


def check_table(task: RankTask, uri: str) -> None:
    """Raises BadInput for a table without one of the task's columns, or with one of another type. Reads its footers alone."""
    table = open_table(uri)
    schema = TableReader(table, task.columns).schema
    for name in [*task.features.dense, *task.labels]:
        check_numbers(schema.field(name).type, name)
    for column in task.features.sparse:
        check_ids(schema.field(column.name).type, column.name)
    if not table.rows:
        raise BadInput(f"{uri}: the table has no row", "name a table with rows; a day without clicks is left out")
