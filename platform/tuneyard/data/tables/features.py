"""Names of features, and the place of a feature in a file: a separate column, or a key of a map column.

`age` is a column. `float_features[12]` is the entry 12 of the map column `float_features`, or a column with exactly that name. A rewrite
that moves a popular entry to its own column keeps the name, so that the same projection reads both tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tuneyard.api import BadInput

_ENTRY = re.compile(r"^(?P<column>.+)\[(?P<key>0|-?[1-9][0-9]*)\]$", re.S)
"""A key has one spelling: `m[01]` is no entry, because one entry must not have two names."""
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Layout:
    """The places of a projection's features in one file. `entries`: map column -> keys; `missing`: features that the file lacks."""

    columns: tuple[str, ...]
    entries: dict[str, tuple[int, ...]]
    missing: tuple[str, ...]

    @property
    def file_columns(self) -> tuple[str, ...]:
        """The columns of the file that must be read, each once."""
        return tuple(dict.fromkeys((*self.columns, *self.entries)))


def entry_name(column: str, key: int) -> str:
    """The name of one entry of a map column: `float_features[12]`."""
    return f"{column}[{key}]"


def entry_of(name: str) -> tuple[str, int] | None:
    """Map column and key of `float_features[12]`; None for a plain name."""
    match = _ENTRY.match(name)
    return (match["column"], int(match["key"])) if match else None


def holds_entries(kind: pa.DataType) -> bool:
    """Whether a column of this type is a map with whole-number keys. Its entries are features."""
    return bool(pa.types.is_map(kind) and pa.types.is_integer(kind.key_type))


def layout(features: Iterable[str], schema: pa.Schema) -> Layout:
    """Find each feature in a file with this schema. A separate column takes precedence over an entry of a map."""
    columns, entries, missing = [], dict[str, list[int]](), []
    for name in features:
        place = entry_of(name)
        if schema.get_field_index(name) >= 0:
            columns.append(name)
        elif place and (index := schema.get_field_index(place[0])) >= 0 and holds_entries(schema.field(index).type):
            entries.setdefault(place[0], []).append(place[1])
        else:
            missing.append(name)
    return Layout(tuple(columns), {column: tuple(keys) for column, keys in entries.items()}, tuple(missing))


def output_schema(features: Sequence[str], schema: pa.Schema, uri: str) -> pa.Schema:
    """The fields of a batch with these features of a table. Raises BadInput for a feature that no file has, and for one named twice."""
    twice = {name for name in features if features.count(name) > 1} if len(set(features)) < len(features) else set()
    if twice:
        raise BadInput(f"{uri}: the projection names {', '.join(sorted(twice))} twice", "name each feature once")
    found = layout(features, schema)
    if found.missing:
        raise _no_such(found.missing, schema, uri)
    fields = []
    for name in features:
        index = schema.get_field_index(name)
        place = entry_of(name)
        if index < 0 and place is not None:
            fields.append(pa.field(name, schema.field(place[0]).type.item_type))
        else:
            fields.append(pa.field(name, schema.field(index).type))
    return pa.schema(fields)


def _no_such(missing: Sequence[str], schema: pa.Schema, uri: str) -> BadInput:
    first = missing[0]
    more = f" (and {len(missing) - 1:,} more of the projection)" if len(missing) > 1 else ""
    place = entry_of(first)
    if place and (index := schema.get_field_index(place[0])) >= 0:
        kind = schema.field(index).type
        return BadInput(
            f"{uri}: {first}: column {place[0]} is {kind}, not a map with whole-number keys{more}", f"name the column {place[0]}"
        )
    near = difflib.get_close_matches(first, schema.names, n=3, cutoff=0.6)
    if near:
        return BadInput(f"{uri}: there is no feature {first!r}{more}", f"did you mean {' or '.join(near)}?")
    shown = ", ".join(schema.names[:_NAMES_SHOWN])
    rest = f" and {len(schema.names) - _NAMES_SHOWN:,} more" if len(schema.names) > _NAMES_SHOWN else ""
    return BadInput(
        f"{uri}: there is no feature {first!r}{more}", f"its columns are {shown}{rest}" if shown else "the table has no columns"
    )
