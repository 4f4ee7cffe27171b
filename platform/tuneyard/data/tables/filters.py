"""Row filters: `("country", "=", 3)`, lists of them (all must hold), lists of lists (any group must hold), as in `pyarrow.parquet`.

A filter works in two steps. Row groups that cannot match by the footer's statistics are not read. Of other row groups, the filter's columns
are read first, and the remaining columns only if a row matches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.data.tables.features import output_schema
from tuneyard.data.tables.ranges import RangeSource

Predicate = tuple[str, str, Any]
_OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
_ROW = "\0row"
"""A name that no feature has."""
Where = Sequence[Predicate] | Sequence[Sequence[Predicate]]


@dataclass(frozen=True)
class RowFilter:
    """Any of `groups` must hold; a group holds where all its predicates do. A null never matches a comparison."""

    groups: tuple[tuple[Predicate, ...], ...]

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for group in self.groups for name, _, _ in group))

    @cached_property
    def expression(self) -> Any:
        return pq.filters_to_expression([list(group) for group in self.groups])

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """True for rows that match, else false. `rows` must have the filter's features."""
        numbered = pa.Table.from_batches([rows]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        mask = np.zeros(rows.num_rows, bool)
        mask[numbered.filter(self.expression).column(_ROW).to_numpy()] = True
        return pa.array(mask)

    def matching_groups(self, source: RangeSource, schema: pa.Schema, groups: int) -> set[int]:
        """Row groups of a file that may hold matching rows, by their statistics. `schema`: the schema of the file."""
        usable = [[one for one in group if _statistics_decide(one, schema)] for group in self.groups]
        if not all(usable):  # a group without a predicate that statistics can decide may match anywhere
            return set(range(groups))
        fragment = ds.ParquetFileFormat().make_fragment(pa.PythonFile(source, "r"))
        found = fragment.subset(filter=pq.filters_to_expression(usable), schema=schema)
        return {info.id for info in found.row_groups}


def row_filter(where: Where, schema: pa.Schema, uri: str) -> RowFilter:
    """Check a filter against a table before any read. Raises BadInput: unknown feature, unknown operator, or types that do not compare."""
    groups = _groups(where, uri)
    fields = output_schema(RowFilter(groups).features, schema, uri)
    found = RowFilter(tuple(tuple(_typed(one, fields.field(one[0]).type, uri) for one in group) for group in groups))
    try:
        fields.empty_table().filter(found.expression)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        shown = ", ".join(f"{name} ({fields.field(name).type})" for name in found.features)
        known = all(operator in _OPERATORS for group in groups for _, operator, _ in group)
        step = "compare numbers with numbers, texts with texts" if known else f"the operators are {', '.join(_OPERATORS)}"
        raise BadInput(f"{uri}: the filter does not fit {shown}: {said_by(error)}", step) from error
    return found


def _statistics_decide(predicate: Predicate, schema: pa.Schema) -> bool:
    """Whether the minimum and maximum of a row group can rule `predicate` out.

    Parquet leaves NaN out of both: a group {5, NaN} looks like {5}. They are therefore useless where NaN itself matches. `in` distinguishes
    0.0 from -0.0, which minimum and maximum do not.
    """
    feature, operator, value = predicate
    index = schema.get_field_index(feature)
    if index < 0:
        return False
    if not pa.types.is_floating(schema.field(index).type):
        return True
    if operator == "in":
        return not any(isinstance(one, int | float) and (one == 0 or math.isnan(one)) for one in _plain(value))
    return operator not in ("!=", "not in")


def _plain(values: Iterable[Any]) -> list[Any]:
    """Values as Python objects: a list may hold scalars of pyarrow or numpy."""
    return [one.as_py() if isinstance(one, pa.Scalar) else one.item() if isinstance(one, np.generic) else one for one in values]


def _typed(predicate: Predicate, kind: pa.DataType, uri: str) -> Predicate:
    """The predicate with `uint64` values where the column has this type: pyarrow's own choice, int64, cannot hold the upper half.

    Raises BadInput for a value that the column cannot hold.
    """
    feature, operator, value = predicate
    if not pa.types.is_uint64(kind):
        return predicate
    several = operator in ("in", "not in") and not isinstance(value, str) and isinstance(value, Iterable)
    plain = _plain(value if several else [value])
    try:
        typed = pa.array([_whole(one) for one in plain], pa.uint64())
    except (OverflowError, TypeError, ValueError) as error:
        cause = f"{uri}: the filter does not fit {feature} ({kind}): {value!r} is no value of this type"
        raise BadInput(cause, f"compare {feature} with whole numbers from 0 to {2**64 - 1:,}") from error
    return feature, operator, typed if several else typed[0]


def _whole(value: Any) -> Any:
    """3.0 as 3. Raises ValueError for 2.5, which pyarrow would truncate to 2."""
    if not isinstance(value, float):
        return value
    if not value.is_integer():
        raise ValueError(f"{value} is no whole number")
    return int(value)


def _groups(where: Where, uri: str) -> tuple[tuple[Predicate, ...], ...]:
    nested = [list(where)] if where and isinstance(where[0], tuple) and isinstance(where[0][0], str) else [list(group) for group in where]
    for group in nested:
        for one in group:
            if not (isinstance(one, tuple) and len(one) == 3 and isinstance(one[0], str)):
                raise BadInput(f"{uri}: {one!r} is not a filter", 'write ("feature", "=", value), a list of these, or a list of such lists')
    if not nested or not all(nested):
        raise BadInput(f"{uri}: the filter is empty", "leave it out to read all rows")
    return tuple(tuple(group) for group in nested)
