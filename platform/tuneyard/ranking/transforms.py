"""A ranker's transforms on the columns of a table: the only place that decides which columns are read, and which are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.tables import Pipeline, Table
from tuneyard.data.tables.features import entry_of
from tuneyard.ranking.columns import is_list, is_text

Columns: TypeAlias = pa.RecordBatch | pa.Table


def transformed(columns: Columns, steps: Pipeline, names: Sequence[str], kinds: Mapping[str, bool] | None = None) -> Columns:
    """`columns` of a table, with `names` made from them. All rows stay, unless a step samples. `kinds`: see `check_kinds`.

    Raises BadInput for a column that is absent, or has a type that a step does not take. Without steps, `columns` unchanged.
    """
    needed = steps.making(names)
    if not needed.steps:
        return columns
    read = steps.reads(names)
    if missing := [name for name in read if name not in columns.schema.names]:
        raise no_column(missing[0], columns.schema.names)
    check_kinds(columns.schema, kinds or {})
    return needed.run(_as_batch(columns))


def schema_of(schema: pa.Schema, steps: Pipeline, names: Sequence[str], kinds: Mapping[str, bool] | None = None) -> pa.Schema:
    """The schema of the result of `transformed`. Raises BadInput in the same cases."""
    check_kinds(schema, kinds or {})
    return steps.making(names).check(schema)


def kinds_of(schema: pa.Schema, steps: Pipeline) -> dict[str, bool]:
    """Whether each input of `steps` holds texts; columns without a type are left out."""
    kinds = {name: schema.field(name).type for name in steps.features if name in schema.names}
    return {name: is_text(_item(kind)) for name, kind in kinds.items() if not pa.types.is_null(_item(kind))}


def check_kinds(schema: pa.Schema, kinds: Mapping[str, bool]) -> None:
    """Raises BadInput for a column of ids that held texts in training, or of texts that held ids: their hashes differ."""
    for name, texts in kinds.items():
        kind = _item(schema.field(name).type) if name in schema.names else pa.null()
        if not pa.types.is_null(kind) and is_text(kind) is not texts:
            seen, here = ("texts", kind) if texts else ("numbers", "texts")
            raise BadInput(
                f"column {name} holds {here}, and the ranker's transforms know it as {seen}", f"cast the column to {seen}, as in training"
            )


def check_outputs(table: Table, steps: Pipeline, read: pa.Schema) -> None:
    """Raises BadInput for a transform whose output hides a column of the table that it does not read."""
    for _, output in steps.made:
        if output in table.schema.names and output not in read.names:
            raise BadInput(
                f"{table.uri}: the table has a column {output}, which a transform of that output would hide",
                "give the output another name, or name the column among the inputs",
            )


def no_column(name: str, there: Iterable[str]) -> BadInput:
    shown, entry = list(there)[:20], entry_of(name)
    if entry is not None and entry[0] in shown:
        given = "read the table by TableReader, or give a dict the key"
        return BadInput(f"the data have no column {name}, an entry of the map {entry[0]}", f"{given} {name} beside its value")
    return BadInput(f"the data have no column {name}", f"name one of: {', '.join(shown)}" if shown else "give rows with columns")


def _item(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if is_list(kind) else kind


def _as_batch(columns: Columns) -> pa.RecordBatch:
    if isinstance(columns, pa.RecordBatch):
        return columns
    whole = [column.combine_chunks() for column in columns.columns]
    arrays = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in whole]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
