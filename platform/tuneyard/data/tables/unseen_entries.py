"""A warning about map entries that no row has, most likely because of a mistyped key.

Footers list columns, but not the keys of maps. A projection of `float_features[9999]` therefore cannot be refused before reading. The
reader warns once per entry: after 100,000 rows, or at the end of its row groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import pyarrow as pa

from tuneyard.data.tables.features import entry_of

_TOLD_AFTER_ROWS = 100_000


class UnseenEntries:
    """Watches the rows of one reader. `names`: the features of its projection and filter. `schema`: the schema of the table."""

    def __init__(self, uri: str, names: Iterable[str], schema: pa.Schema) -> None:
        self._uri = uri
        self._rows = {name: 0 for name in names if schema.get_field_index(name) < 0 and entry_of(name)}

    def look(self, rows: pa.RecordBatch) -> None:
        """Count the rows of a row group. An entry is dropped once a row has it."""
        for name in [name for name in rows.schema.names if name in self._rows]:
            if rows.column(name).null_count < rows.num_rows:
                del self._rows[name]
                continue
            self._rows[name] += rows.num_rows
            if self._rows[name] >= _TOLD_AFTER_ROWS:
                self._tell(name)

    def end(self) -> None:
        """Warn of all remaining entries, after the last row group."""
        for name in [name for name, rows in self._rows.items() if rows]:
            self._tell(name)

    def _tell(self, name: str) -> None:
        column, _ = entry_of(name) or (name, 0)
        message = f"{self._uri}: none of {self._rows.pop(name):,} rows has {name}: all are null; is it a key of {column}?"
        warnings.warn(message, stacklevel=2)
