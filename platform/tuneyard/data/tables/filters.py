"""Row filters: `("country", "=", 3)`, lists of them (all must hold), lists of lists (any group must hold), as in `pyarrow.parquet`.

A filter works in two places. Statistics in the footer leave out row groups that cannot match: nothing of them is read. In the others the
filter's own columns are read first, and the rest of the row group only if a row matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tuneyard.api import BadInput
from tuneyard.data.tables.features import output_schema
from tuneyard.data.tables.ranges import RangeSource

Predicate = tuple[str, str, Any]
_OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
_ROW = "\0row"
"""No feature has this name."""
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
        """True for rows that match, false for the others. `rows` holds the filter's features."""
        numbered = pa.Table.from_batches([rows]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        mask = np.zeros(rows.num_rows, bool)
        mask[numbered.filter(self.expression).column(_ROW).to_numpy()] = True
        return pa.array(mask)

    def matching_groups(self, source: RangeSource, schema: pa.Schema, groups: int) -> set[int]:
        """Row groups of a file that may hold matching rows, by their statistics. `schema`: the file's."""
        usable = [[one for one in group if schema.get_field_index(one[0]) >= 0] for group in self.groups]
        if not all(usable):  # a group without an own column of this file may match anywhere
            return set(range(groups))
        fragment = ds.ParquetFileFormat().make_fragment(pa.PythonFile(source, "r"))
        found = fragment.subset(filter=pq.filters_to_expression(usable), schema=schema)
        return {info.id for info in found.row_groups}


def row_filter(where: Where, schema: pa.Schema, uri: str) -> RowFilter:
    """Check a filter against a table before anything is read. Raises BadInput: unknown feature, operator, or types that do not compare."""
    groups = _groups(where, uri)
    found = RowFilter(groups)
    fields = output_schema(found.features, schema, uri)
    try:
        fields.empty_table().filter(found.expression)
    except (pa.ArrowException, ValueError, TypeError) as error:
        shown = ", ".join(f"{name} ({fields.field(name).type})" for name in found.features)
        known = all(operator in _OPERATORS for group in groups for _, operator, _ in group)
        step = "compare numbers with numbers, texts with texts" if known else f"the operators are {', '.join(_OPERATORS)}"
        raise BadInput(f"{uri}: the filter does not fit {shown}: {str(error).splitlines()[0]}", step) from error
    return found


def _groups(where: Where, uri: str) -> tuple[tuple[Predicate, ...], ...]:
    nested = [list(where)] if where and isinstance(where[0], tuple) and isinstance(where[0][0], str) else [list(group) for group in where]
    for group in nested:
        for one in group:
            if not (isinstance(one, tuple) and len(one) == 3 and isinstance(one[0], str)):
                raise BadInput(f"{uri}: {one!r} is not a filter", 'write ("feature", "=", value), a list of these, or a list of such lists')
    if not nested or not all(nested):
        raise BadInput(f"{uri}: the filter is empty", "leave it out to read all rows")
    return tuple(tuple(group) for group in nested)
