"""Savings by another order of columns: bytes and requests of the reads in an access log, with the current order and with the better one.

Both are computed from the chunk sizes in the footers, by the reader's own read plan, without reading columns. Footers do not state the
bytes of a map's entries: one row group is read for them, and an entry's share of the map's values counts as its share of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tuneyard.api import BadInput
from tuneyard.data.tables.access_log import Projections
from tuneyard.data.tables.column_order import ColumnReads, best_order, with_entries
from tuneyard.data.tables.decoding import OpenFile
from tuneyard.data.tables.features import entry_name, entry_of, holds_entries
from tuneyard.data.tables.map_entries import map_entries
from tuneyard.data.tables.ranges import REMOTE, Coalescing, Range, RangeSource, Traffic, chunk_range, coalesced, leaves
from tuneyard.data.tables.table import Table, TableFile, open_parquet

_SAMPLED_FILES = 8
_SAMPLED_GROUPS = 4


@dataclass(frozen=True)
class Reads:
    """All reads of a log: bytes read, bytes wanted, requests."""

    read_bytes: int
    wanted_bytes: int
    requests: int


@dataclass(frozen=True)
class Savings:
    """The better order. `columns`: its columns, with `entries` of maps as columns. `popularity`: share of the rows read with a feature."""

    before: Reads
    after: Reads
    columns: tuple[str, ...]
    entries: tuple[str, ...]
    popularity: Mapping[str, float]
    unknown: tuple[str, ...]
    """Features in the log that the table does not have."""

    @property
    def ratio(self) -> float:
        """Bytes read with the better order, as a share of the bytes read with the current order."""
        return self.after.read_bytes / self.before.read_bytes if self.before.read_bytes else 1.0


def savings(table: Table, log: Projections, *, rule: Coalescing = REMOTE, flatten: float | None = None) -> Savings:
    """Find the better order for a log, and count its reads.

    `flatten`: map entries with at least this popularity (share of rows read) become columns. Reads are counted on up to 4 row groups of up
    to 8 files, and scaled to the rows of the log. Raises BadInput where the table has none of the log's features.
    """
    popularity = _popularity(log)
    known = {name for name in popularity if _column_of(name, table.schema) is not None}
    if not known:
        raise BadInput(f"{table.uri}: has none of the features in the log", "give the log of this table's readers")
    entries = _chosen_entries(known, popularity, table.schema, flatten)
    groups = [sizes for file in _spread(table.files, _SAMPLED_FILES) for sizes in _group_sizes(file)]
    split = [_split(sizes, _entry_shares(table, entries)) for sizes in groups]
    names = tuple(with_entries(table.schema.names, entries))
    mean = {name: float(np.mean([sizes.get(name, 0) for sizes in split])) if split else 0.0 for name in names}
    chosen = frozenset(name for several in entries.values() for name in several)
    after_projections = _in_columns(log, table.schema, chosen)
    order = best_order(ColumnReads.of(mean, after_projections), rule)
    sampled_rows = sum(sum(file.group_rows[:_SAMPLED_GROUPS]) for file in _spread(table.files, _SAMPLED_FILES))
    return Savings(
        before=_reads(groups, table.schema.names, _in_columns(log, table.schema, frozenset()), rule, sampled_rows),
        after=_reads(split, order, after_projections, rule, sampled_rows),
        columns=order,
        entries=tuple(sorted(chosen)),
        popularity=popularity,
        unknown=tuple(sorted(set(popularity) - known)),
    )


def _popularity(log: Projections) -> dict[str, float]:
    total = sum(log.rows.values()) or 1
    found: dict[str, float] = {}
    for projection, rows in log.rows.items():
        for name in projection:
            found[name] = found.get(name, 0.0) + rows / total
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _column_of(name: str, schema: pa.Schema) -> str | None:
    """The column that holds a feature; None where there is none."""
    if schema.get_field_index(name) >= 0:
        return name
    place = entry_of(name)
    if place and (index := schema.get_field_index(place[0])) >= 0 and holds_entries(schema.field(index).type):
        return place[0]
    return None


def _chosen_entries(
    known: set[str], popularity: Mapping[str, float], schema: pa.Schema, flatten: float | None
) -> dict[str, tuple[str, ...]]:
    chosen: dict[str, list[str]] = {}
    for name in sorted(known):
        column = _column_of(name, schema)
        if flatten is not None and column is not None and column != name and popularity[name] >= flatten:
            chosen.setdefault(column, []).append(name)
    return {column: tuple(names) for column, names in chosen.items()}


def _in_columns(log: Projections, schema: pa.Schema, own: frozenset[str]) -> dict[frozenset[str], int]:
    """The projections as sets of columns. `own`: map entries that count as columns."""
    found: dict[frozenset[str], int] = {}
    for projection, rows in log.rows.items():
        columns = frozenset(column for name in projection if (column := name if name in own else _column_of(name, schema)) is not None)
        if columns:
            found[columns] = found.get(columns, 0) + rows
    return found


def _spread(files: Sequence[TableFile], count: int) -> Sequence[TableFile]:
    return files if len(files) <= count else [files[len(files) * index // count] for index in range(count)]


def _group_sizes(file: TableFile) -> list[dict[str, int]]:
    """Bytes of each column in each of the first row groups, in the order of the file."""
    source = RangeSource(file.file, Traffic())
    try:
        metadata = open_parquet(source, file.footer).metadata
        places = leaves(file.schema)
        groups = [metadata.row_group(group) for group in range(min(len(file.group_rows), _SAMPLED_GROUPS))]
        return [{name: sum(chunk_range(group.column(leaf)).size for leaf in found) for name, found in places.items()} for group in groups]
    finally:
        source.close()


def _reads(
    groups: Sequence[Mapping[str, int]],
    order: Sequence[str],
    projections: Mapping[frozenset[str], int],
    rule: Coalescing,
    sampled_rows: int,
) -> Reads:
    read = wanted = requests = 0.0
    for sizes in groups:
        ranges, at = {}, 0
        for name in order:
            ranges[name] = Range(at, at + sizes.get(name, 0))
            at = ranges[name].stop
        for projection, rows in projections.items():
            chunks = [ranges[name] for name in projection if name in sizes]
            plan = coalesced(chunks, rule)
            read += rows * sum(one.size for one in plan)
            wanted += rows * sum(one.size for one in chunks)
            requests += rows * len(plan)
    scale = 1 / sampled_rows if sampled_rows else 0.0
    return Reads(round(read * scale), round(wanted * scale), round(requests * scale))


def _entry_shares(table: Table, entries: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Map column -> entry -> its share of the column's values, from the first row group that has rows."""
    shares: dict[str, dict[str, float]] = {}
    for column, names in entries.items():
        file = next((one for one in table.files if one.schema.get_field_index(column) >= 0 and sum(one.group_rows)), None)
        if file is None:
            continue
        source = OpenFile(file, Traffic(), REMOTE)
        try:
            group = next(index for index, rows in enumerate(file.group_rows) if rows)
            maps = source.decode(group, [column], source.fetch(group, [column]))[column]
        finally:
            source.close()
        keys = [place[1] for name in names if (place := entry_of(name))]
        total = max(_values(maps.items), 1)
        shares[column] = {
            entry_name(column, key): min(_values(array.drop_null()) / total, 1.0)
            for key, array in zip(keys, map_entries(maps, keys), strict=True)
        }
    return shares


def _values(array: pa.Array) -> int:
    """Number of stored values: one per number; for lists, one per list and one per item."""
    return len(array) + (int(pc.sum(pc.list_value_length(array)).as_py() or 0) if pa.types.is_list(array.type) else 0)


def _split(sizes: Mapping[str, int], shares: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """Sizes with entries of maps as separate columns, and maps without these entries."""
    found = dict(sizes)
    for column, parts in shares.items():
        whole = sizes.get(column, 0)
        found |= {name: round(whole * share) for name, share in parts.items()}
        found[column] = max(whole - sum(found[name] for name in parts), 0)
    return found
