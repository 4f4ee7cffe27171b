"""One schema for the files of a table. Files may have different features, but a feature has the same type in all files.

Types with the same values in another layout (dictionary-encoded text, lists with 64-bit offsets, another name of the list's field) count as
equal: batches get the layout of the first file. A column of nulls alone gets its type from another file.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tuneyard.api import BadInput


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without its physical layout."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_type), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return kind


def same_values(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both types hold the same values."""
    return bool(one.equals(other) or plain(one).equals(plain(other)))


def united(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of all files, in the order of their first occurrence. `schemas`: (name of the file, its schema).

    Raises BadInput for a column whose type differs between two files, and for a file with two columns of one name.
    """
    fields: dict[str, pa.Field] = {}
    homes: dict[str, str] = {}
    last: pa.Schema | None = None
    for uri, schema in schemas:
        if last is not None and schema.equals(last):
            continue
        last = schema
        if len(set(schema.names)) < len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise BadInput(f"{uri}: two columns are named {twice!r}", "rename one of them")
        for field in schema:
            known = fields.get(field.name)
            if known is None or (pa.types.is_null(known.type) and not pa.types.is_null(field.type)):
                fields[field.name], homes[field.name] = pa.field(field.name, field.type), uri
            elif not pa.types.is_null(field.type) and not same_values(known.type, field.type):
                raise BadInput(
                    f"column {field.name!r} is {known.type} in {homes[field.name]} and {field.type} in {uri}",
                    "write the files again with one type, or read them as two tables",
                )
    return pa.schema(list(fields.values()))


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """`array` in the layout `kind`, which holds the same values."""
    if array.type.equals(kind):
        return array
    return pa.nulls(len(array), kind) if pa.types.is_null(array.type) else pc.cast(array, kind)
