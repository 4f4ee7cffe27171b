"""Columns -> the tensors that a ranker reads. Every value is checked: a wrong column is an error with its name, never a wrong number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import xxhash

from tuneyard.api import BadInput
from tuneyard.ranking.columns import check_ids, check_numbers, is_list, is_text
from tuneyard.ranking.config import RankerConfig, SparseFeature
from tuneyard.ranking.transforms import Columns, no_column, transformed

LABELS = "labels"


def batch_of(columns: Columns, config: RankerConfig, *, labels: bool = True) -> dict[str, torch.Tensor]:
    """`dense`, `NAME.ids` and `NAME.offsets` of each sparse feature, and `labels` [rows, tasks], from rows in Arrow's columns.

    The ranker's transforms run first. Null, NaN and infinite dense numbers count as missing; a null category or list is an empty one.
    Raises BadInput for a column that is absent or has another type, and for labels other than 0 and 1.
    """
    names = [*config.features, *(config.tasks if labels else ())]
    return tensors_of(transformed(columns, config.transforms, names, config.text_inputs), config, labels=labels)


def tensors_of(
    columns: Columns, config: RankerConfig, *, labels: bool = True, numbers: Sequence[int] | None = None
) -> dict[str, torch.Tensor]:
    """`batch_of` for rows that are already transformed. `numbers`: row numbers, for errors."""
    made: dict[str, torch.Tensor] = {}
    if config.dense:
        made["dense"] = torch.stack([_numbers(_column(columns, name), name) for name in config.dense], dim=1)
    for feature in config.sparse:
        made[f"{feature.name}.ids"], made[f"{feature.name}.offsets"] = _ids(_column(columns, feature.name), feature)
    if labels:
        rows = range(columns.num_rows) if numbers is None else numbers
        made[LABELS] = torch.stack([_labels(_column(columns, name), name, rows) for name in config.tasks], dim=1)
    return made


def batch_of_rows(rows: Sequence[Mapping[str, Any]], config: RankerConfig, *, labels: bool = True) -> dict[str, torch.Tensor]:
    """`batch_of` for rows as dicts. Raises BadInput also for a column with values of several types."""
    arrays = {}
    for name in config.transforms.reads([*config.features, *(config.tasks if labels else ())]):
        if not any(name in row for row in rows):
            raise no_column(name, sorted({key for row in rows for key in row}))
        try:
            arrays[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadInput(f"column {name} has values of several types: {error}", "make them all numbers, or all lists of ids") from error
    return batch_of(pa.table(arrays), config, labels=labels)


def _column(columns: Columns, name: str) -> pa.Array:
    if name not in columns.schema.names:
        raise no_column(name, columns.schema.names)
    found = columns.column(name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _numbers(column: pa.Array, name: str) -> torch.Tensor:
    check_numbers(column.type, name)
    values = pc.cast(column, pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    return torch.from_numpy(np.array(values, dtype=np.float32))  # a copy, with NaN for nulls


def _ids(column: pa.Array, feature: SparseFeature) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of all rows, and the offsets at which each row's ids begin and end."""
    kind, name = column.type, feature.name
    if pa.types.is_null(kind):
        return torch.zeros(0, dtype=torch.int64), torch.zeros(len(column) + 1, dtype=torch.int64)
    check_ids(kind, name, texts=feature.texts)
    if is_list(kind):
        lists = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        values = column.flatten()
    else:
        lists = np.asarray(pc.cast(column.is_valid(), pa.int64()))
        values = column.drop_null()
    if values.null_count:
        raise BadInput(f"a list of {name} holds a null", "leave nulls out of lists: the transformation first_x does")
    if is_text(values.type):
        values = _hashes(values)
    if pa.types.is_uint64(values.type):
        values = pa.array(values.to_numpy().view(np.int64))  # the same 64 bits, which are hashed later
    ids = np.array(pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
    offsets = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(lists, out=offsets[1:])
    return torch.from_numpy(ids), torch.from_numpy(offsets)


def _hashes(texts: pa.Array) -> pa.Array:
    """A 64-bit hash of each text, the same on every machine; each distinct text is hashed once."""
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    hashes = (xxhash.xxh3_64_intdigest(text.as_py()) for text in pc.cast(coded.dictionary, pa.large_binary()))
    found = np.fromiter(hashes, dtype=np.uint64, count=len(coded.dictionary)).view(np.int64)
    return pa.array(found[coded.indices.to_numpy(zero_copy_only=False)] if len(found) else np.zeros(0, np.int64))


def _labels(column: pa.Array, name: str, numbers: Sequence[int]) -> torch.Tensor:
    found = _numbers(column, name)
    wrong = ~((found == 0) | (found == 1))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise BadInput(
            f"label {name} is {column[at].as_py()!r} in row {numbers[at]}, and not 0 or 1",
            "give each row a label of 0 or 1, or leave the row out",
        )
    return found
