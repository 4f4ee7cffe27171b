"""Columns that no sample uses: each is named once, with an example, where it differs between rows or changes what a row means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tuneyard.data.meaning.paths import leaves, shown, structured, value_at
from tuneyard.data.meaning.role_names import is_filled, is_telling

_NAMED, _SHOWN, _MOST_PARTS = 8, 3, 200
_ITEM = re.compile(r"\[\d+\]")
Row = Mapping[str, Any]


def unused_columns(rows: Sequence[Row], uses: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    """Names of columns, or paths inside columns that are used in part, each with a value; those that change the meaning of a row first.

    `uses`: columns and paths that samples use.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    used = set(uses)
    inside = {path for path in used if path not in names}
    found = [(name, value) for name, value in _candidates(rows, names, used, inside) if not _is_used(name, inside)]
    return tuple(sorted(found, key=lambda each: not is_telling(each[0])))


def _candidates(rows: Sequence[Row], names: Iterable[str], used: set[str], inner: set[str]) -> Iterable[tuple[str, Any]]:
    partly = {path.partition(".")[0].partition("[")[0] for path in inner}
    entered = {path[: found.start()] for path in inner for found in _ITEM.finditer(path)}
    for name in names:
        if name in used:
            continue
        if name in partly:
            inside = [dict(islice(_parts(name, row[name], entered), _MOST_PARTS)) for row in rows if structured(row.get(name))]
            for path in dict.fromkeys(path for each in inside for path in each):
                yield from _told(path, [each.get(path) for each in inside])
        else:
            yield from _told(name, [row.get(name) for row in rows])


def _parts(path: str, value: Any, entered: set[str]) -> Iterator[tuple[str, Any]]:
    """The innermost values with their paths. Lists are values, but for lists of objects of which samples use an item (`entered`)."""
    inner = structured(value)
    if isinstance(inner, Mapping) and inner:
        for name, each in inner.items():
            yield from _parts(f"{path}.{name}", each, entered)
    elif path in entered and isinstance(inner, list) and all(isinstance(each, Mapping) for each in inner):
        for number, each in enumerate(inner):
            yield from _parts(f"{path}[{number}]", each, entered)
    else:
        yield path, value


def _told(name: str, values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    """The name with a value, if the column has to be named."""
    filled = [value for value in values if is_filled(value)]
    last = name.rpartition(".")[2]
    if filled and (is_telling(last) or any(value != filled[0] for value in filled) or len(filled) < len(values)):
        yield name, filled[0]


def _is_used(name: str, inside: set[str]) -> bool:
    """Whether a path is used, a part of it is, or it is part of one that is."""
    return name in inside or any(path.startswith((f"{name}.", f"{name}[")) or name.startswith((f"{path}.", f"{path}[")) for path in inside)


def described_columns(unused: Sequence[tuple[str, Any]]) -> str:
    """`id, source (id: 17, source: "wiki")`; of many columns, the first ones and their number."""
    names = ", ".join(name for name, _ in unused[:_NAMED]) + (f" and {len(unused) - _NAMED:,} more" if len(unused) > _NAMED else "")
    return f"{names} {'is' if len(unused) == 1 else 'are'} not used ({', '.join(f'{n}: {shown(v)}' for n, v in unused[:_SHOWN])})"


def found_columns(rows: Sequence[Row]) -> str:
    """The columns of the first rows, for messages; objects by their parts."""
    names: dict[str, None] = {}
    for row in rows[:_NAMED]:
        names.update(dict.fromkeys(path for path, _ in leaves(row)))
    for row in rows:
        if len(names) >= 3 * _NAMED:
            break
        names.update(dict.fromkeys(name for name in row if not any(path.startswith(f"{name}.") for path in names)))
    listed = list(names)
    return ", ".join(listed[: 3 * _NAMED]) + (f" and {len(listed) - 3 * _NAMED:,} more" if len(listed) > 3 * _NAMED else "") or "none"


def value_of(rows: Sequence[Row], column: str) -> Any:
    """The first value of a column, or at a path, that is not empty."""
    return next((value for row in rows if is_filled(value := value_at(row, column))), None)
