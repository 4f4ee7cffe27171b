"""Any source as a memory-mapped `datasets.Dataset` with its own columns: `tuneyard.data.open_dataset`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.cache import cache_root, cached_folder
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.samples import Tally
from tuneyard.data.sources import Located, locate

BAD_ROWS = "bad.json"
"""File beside the rows: `bad`, how many were left out, and `bad_examples` of them."""
_BATCH = 1024
_BATCH_BYTES = 32 << 20


def open_dataset(
    uri: str,
    *,
    split: str | None = None,
    file_type: str = "auto",
    sheet: str | None = None,
    limit: int | None = None,
    max_bad_fraction: float = 0.01,
    cache_dir: str | Path | None = None,
) -> Any:
    """Open a file, folder, glob or hf:// name as a `datasets.Dataset`: an Arrow file in the cache, mapped into memory, never loaded whole.

    Types of columns come from the first rows. Rows that cannot be read, or do not fit these types, are left out, up to `max_bad_fraction`.
    Raises BadInput (missing, unknown type, too many bad rows: with file and line), StorageError (not reachable).
    """
    import datasets

    located = locate(uri, file_type=file_type, split=split, sheet=sheet)
    key = {
        "code": 3,
        "files": [file.identity() for file in located.files],
        "kinds": [file.reader for file in located.files],
        "limit": limit,
        "bad": max_bad_fraction,
    }
    entry, _ = cached_folder(
        cache_root(cache_dir) / "datasets", key, lambda folder: _write(located, folder / "rows.arrow", limit, Tally(uri, max_bad_fraction))
    )
    return datasets.Dataset.from_file(str(entry / "rows.arrow"))


def _write(located: Located, path: Path, limit: int | None, tally: Tally) -> None:
    records = good_records(read_records(located.files), tally)
    head = next_records(records)
    if not head:
        tally.max_bad_fraction = 0.0
        tally.check()
    schema = _schema(located, head)
    left = limit if limit is not None else -1
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        while head and left != 0:
            batch, _ = fitted(head[:left] if left > 0 else head, schema, tally)
            writer.write_batch(batch)
            left = left - batch.num_rows if left > 0 else left
            head = next_records(records)
    tally.check()
    path.with_name(BAD_ROWS).write_text(json.dumps({"bad": tally.bad, "bad_examples": tally.bad_examples}))


def good_records(rows: Iterator[Record | BadRow], tally: Tally) -> Iterator[Record]:
    """The readable rows. The tally counts good and bad rows."""
    for row in rows:
        if isinstance(row, BadRow):
            tally.add_bad(row.place, row.reason, row.count, advice=row.advice)
        else:
            tally.good += 1
            yield row


def next_records(records: Iterator[Record], most: int = _BATCH) -> list[Record]:
    """The next rows: at most so many, and of long texts, lists or images about 32 MiB. Empty at the end."""
    found, size_bytes = list[Record](), 0
    while len(found) < most and size_bytes < _BATCH_BYTES and (record := next(records, None)) is not None:
        found.append(record)
        size_bytes += _size_of(record.values)
    return found


def _size_of(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size_of, value.values()))
    if not isinstance(value, list) or not value:
        return 0
    return sum(map(_size_of, value)) if isinstance(value[0], bytes | str | dict | list) else 8 * len(value)


def first_schema(located: Located) -> Any:
    """The Arrow schema of the first rows, as for a data set that is written whole. Raises BadInput where none is readable."""
    tally = Tally(located.uri)
    head = next_records(good_records(read_records(located.files), tally))
    if not head:
        tally.max_bad_fraction = 0.0
        tally.check()
    return _schema(located, head)


def _schema(located: Located, head: list[Record]) -> Any:
    try:
        return pa.RecordBatch.from_pylist(_with_all_columns([record.values for record in head])).schema
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    schemas: list[Any] = []
    for record in head:  # the rows' types differ: the schema comes from the first rows that agree
        schema = pa.RecordBatch.from_pylist([record.values]).schema
        try:
            pa.unify_schemas([*schemas, schema])
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
        schemas.append(schema)
    if not schemas:
        raise BadInput(f"{located.uri}: no two rows have the same types", "make the columns' types agree")
    return pa.unify_schemas(schemas)


def _with_all_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def fitted(records: list[Record], schema: Any, tally: Tally) -> tuple[Any, list[Record]]:
    """The records that fit a schema, as a batch and as they are. The tally counts the others as bad."""
    try:
        return pa.RecordBatch.from_pylist([record.values for record in records], schema=schema), records
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        fitting = [record for record in records if _fits(record, schema, tally)]
        return pa.RecordBatch.from_pylist([record.values for record in fitting], schema=schema), fitting


def _fits(record: Record, schema: Any, tally: Tally) -> bool:
    values: Mapping[str, Any] = record.values
    try:
        pa.RecordBatch.from_pylist([values], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        tally.became_bad(record.place, f"does not fit the types of the first rows: {said_by(error)}")
        return False
    return True
