"""Builders of wide tables for tests: rows with dense, sparse and map features, and what a projection of them must give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tuneyard.data.tables import Table, TableReader, open_table, write_table

Row = Mapping[str, Any]
ENTRIES = ("floats[1]", "floats[3]", "id_lists[2]", "id_lists[5]")
"""Some entries of the map columns that `feature_rows` makes."""


def feature_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a feature log: `id`, ten dense features with gaps, five id lists, and two maps."""
    random = Random(seed)
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"id": number}
        row |= {f"dense{k}": round(random.gauss(0, 1), 3) for k in range(10) if random.random() < 0.7}
        row |= {f"ids{k}": [random.randrange(1000) for _ in range(random.randrange(6))] for k in range(5) if random.random() < 0.8}
        row["floats"] = {str(k): random.random() for k in range(8) if random.random() < 0.5}
        row["id_lists"] = {str(k): [random.randrange(50) for _ in range(random.randrange(4))] for k in range(8) if random.random() < 0.5}
        rows.append(row)
    return rows


def value_of(row: Row, feature: str) -> Any:
    """What a reader must give for a feature of a row: `floats[3]` is the entry 3 of the map `floats`."""
    if feature in row or not feature.endswith("]"):
        value = row.get(feature)
        return [(int(key), item) for key, item in value.items()] if isinstance(value, Mapping) else value
    column, _, key = feature[:-1].partition("[")
    return (row.get(column) or {}).get(key)


def projected(rows: Iterable[Row], features: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with these features alone."""
    return [{feature: value_of(row, feature) for feature in features} for row in rows]


def table_at(folder: Path, rows: Iterable[Row], *, row_group_rows: int = 16, file_bytes: int = 1, **options: Any) -> Table:
    """Write a table and open it; with `file_bytes` 1, each row group is a file."""
    write_table(str(folder), rows, row_group_rows=row_group_rows, file_bytes=file_bytes, **options)
    return open_table(str(folder))


def rows_of(batches: TableReader | Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows of some batches."""
    return [row for batch in batches for row in batch.to_pylist()]
