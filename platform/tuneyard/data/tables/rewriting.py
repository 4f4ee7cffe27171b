"""Rewrites a table with its columns in another order, and popular entries of map columns as separate columns.

The rewrite goes file by file and row group by row group. Rows, files and row groups stay the same. Each file is written atomically. A state
file in the output folder holds the plan, so that a killed rewrite continues with the same order, even if the log has grown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tuneyard.api import BadInput, StorageError
from tuneyard.data.tables.access_log import Projections
from tuneyard.data.tables.column_savings import savings
from tuneyard.data.tables.decoding import OpenFile
from tuneyard.data.tables.features import entry_name, entry_of
from tuneyard.data.tables.map_entries import key_slots, map_entries
from tuneyard.data.tables.ranges import REMOTE, Coalescing, RangeSource, Traffic
from tuneyard.data.tables.rewrite_state import STATE_FILE, RewriteSettings, RewriteState, read_state, write_state
from tuneyard.data.tables.table import Table, TableFile, open_parquet
from tuneyard.storage import Store, absolute, open_store

OnFile = Callable[[int, int], None]
"""Called with the number of finished files and the number of all files."""


@dataclass(frozen=True)
class Rewritten:
    """The result of a rewrite. `files`: files written now; `kept`: files of an earlier start."""

    uri: str
    files: int
    kept: int
    size_bytes: int


def reorder(
    table: Table, log: Projections, out: str, *, rule: Coalescing = REMOTE, flatten: float | None = None, on_file: OnFile | None = None
) -> Rewritten:
    """Rewrite the table to `out`. It may be killed at any time and called again; a finished rewrite is left unchanged.

    `flatten`: as in `savings`. Raises BadInput where `out` holds anything but an earlier start of the same rewrite, or lies in the table. A
    rewrite is the same with the same files, `flatten` and `rule`, and, if it is finished, with the log of its first or last start.
    """
    here, there = (f"{absolute(uri, Path.cwd()).rstrip('/')}/" for uri in (table.uri, out))
    if there.startswith(here):
        raise BadInput(f"{out} lies inside the table {table.uri}", "write to a folder beside it")
    store = open_store(out)
    settings = RewriteSettings(flatten, rule.hole_bytes, rule.request_bytes, log.digest, log.summary)
    state = read_state(store) or _begun(store, table, log, rule, settings)
    if state.identity != table.identity:
        raise BadInput(f"{out}: holds a rewrite of other files, of {state.source}", "write to another folder, or remove this one")
    state.refuse_others(out, settings)
    names = _relative_names(table.files)
    written = kept = 0
    for number, (name, file) in enumerate(zip(names, table.files, strict=True)):
        if store.exists(name):
            kept += 1
        else:
            _rewrite(file, store, name, state)
            written += 1
        if on_file is not None:
            on_file(number + 1, len(names))
    if not state.finished:
        write_state(store, replace(state, finished=True, last_log=log.digest))
    return Rewritten(out, written, kept, sum(file.size_bytes for file in store.list() if file.path != STATE_FILE))


def _begun(store: Store, table: Table, log: Projections, rule: Coalescing, settings: RewriteSettings) -> RewriteState:
    there = store.list()
    if there:
        raise BadInput(f"{store.uri}: holds files already, such as {there[0].path}", "name a new folder: nothing is overwritten")
    found = savings(table, log, rule=rule, flatten=settings.flatten)
    state = RewriteState(table.uri, table.identity, found.columns, found.entries, settings=settings)
    write_state(store, state)
    return state


def _relative_names(files: Sequence[TableFile]) -> list[str]:
    """Names relative to the folder that all files share."""
    parts = [file.uri.split("/") for file in files]
    shared = 0
    while all(len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    return ["/".join(one[shared:]) for one in parts]


def _rewrite(file: TableFile, store: Store, name: str, state: RewriteState) -> None:
    entries = [place for entry in state.entries if (place := entry_of(entry))]
    source = OpenFile(file, Traffic(), REMOTE)
    metadata, codec = _settings(file)
    with TemporaryDirectory(prefix="tuneyard-table-") as folder:
        local = Path(folder) / "part.parquet"
        schema = _new_schema(file.schema, entries, state.columns)
        try:
            with pq.ParquetWriter(local, schema.with_metadata(metadata), compression=codec) as writer:
                for group, rows in enumerate(file.group_rows):
                    columns = source.decode(group, file.schema.names, source.fetch(group, file.schema.names))
                    arrays = _taken_out(columns, entries)
                    made = pa.Table.from_arrays([arrays[field.name] for field in schema], schema=schema)
                    if made.num_columns:
                        writer.write_table(made, row_group_size=max(rows, 1))
        finally:
            source.close()
        if (rows := pq.read_metadata(local).num_rows) != sum(file.group_rows):
            raise StorageError(f"{file.uri}: {sum(file.group_rows):,} rows became {rows:,}", "report this as a bug of Tuneyard")
        store.put_file(name, local)


def _settings(file: TableFile) -> tuple[dict[bytes, bytes] | None, str]:
    """Key-value metadata and compression of a file."""
    source = RangeSource(file.file, Traffic())
    try:
        footer = open_parquet(source, file.footer).metadata
        codec = "zstd"
        if footer.num_row_groups and footer.num_columns:
            codec = footer.row_group(0).column(0).compression.lower()
        return footer.schema.to_arrow_schema().metadata, "none" if codec == "uncompressed" else codec
    finally:
        source.close()


def _new_schema(schema: pa.Schema, entries: Sequence[tuple[str, int]], order: Sequence[str]) -> pa.Schema:
    fields = {field.name: field for field in schema}
    for column, key in entries:
        if column in fields and entry_name(column, key) not in fields:
            fields[entry_name(column, key)] = pa.field(entry_name(column, key), fields[column].type.item_type)
    return pa.schema([fields[name] for name in order if name in fields])


def _taken_out(columns: dict[str, Any], entries: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Columns with the entries as separate columns, and the maps without these entries."""
    by_column: dict[str, list[int]] = {}
    for column, key in entries:
        if column in columns and entry_name(column, key) not in columns:
            by_column.setdefault(column, []).append(key)
    made = dict(columns)
    for column, keys in by_column.items():
        maps = columns[column]
        made |= {entry_name(column, key): array for key, array in zip(keys, map_entries(maps, keys), strict=True)}
        made[column] = _without(maps, keys)
    return made


def _without(maps: pa.MapArray, keys: Sequence[int]) -> pa.MapArray:
    offsets = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    entry_keys = maps.keys.slice(first, last - first)
    kept = key_slots(entry_keys, keys) < 0
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    mask = pa.array(kept)
    missing = maps.is_null() if maps.null_count else None
    return pa.MapArray.from_arrays(
        pa.array(before[offsets - first]),
        entry_keys.filter(mask),
        maps.items.slice(first, last - first).filter(mask),
        type=maps.type,
        **({"mask": missing} if missing is not None else {}),
    )
