"""Wide tables: Parquet with thousands of features, read by projection into flat buffers.

A reader fetches the column chunks of the projected features of each row group in few requests, and yields Arrow batches of N rows with a
cursor. Entries of map columns become columns. Transformations are declared as data and run per batch. A writer turns feature logs into
tables. A rewrite orders columns by an access log, so that columns that are read together lie together.

The room loads lazily: its modules import pyarrow on first use, and torch only for tensors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.data.tables.access_log import Projections, read_log
    from tuneyard.data.tables.column_savings import Savings, savings
    from tuneyard.data.tables.flat_features import Flat, flat
    from tuneyard.data.tables.ranges import Coalescing
    from tuneyard.data.tables.reader import Cursor, TableReader
    from tuneyard.data.tables.rewriting import Rewritten, reorder
    from tuneyard.data.tables.table import Table, open_table
    from tuneyard.data.tables.tensor_batches import TensorBatches
    from tuneyard.data.tables.transforms import Pipeline, fitted
    from tuneyard.data.tables.writer import TableWriter, write_table

__all__ = [
    "Coalescing",
    "Cursor",
    "Flat",
    "Pipeline",
    "Projections",
    "Rewritten",
    "Savings",
    "Table",
    "TableReader",
    "TableWriter",
    "TensorBatches",
    "fitted",
    "flat",
    "open_table",
    "read_log",
    "reorder",
    "savings",
    "write_table",
]

_HOMES = {
    "Coalescing": "ranges",
    "Cursor": "reader",
    "Flat": "flat_features",
    "Pipeline": "transforms",
    "Projections": "access_log",
    "Rewritten": "rewriting",
    "Savings": "column_savings",
    "Table": "table",
    "TableReader": "reader",
    "TableWriter": "writer",
    "TensorBatches": "tensor_batches",
    "fitted": "transforms",
    "flat": "flat_features",
    "open_table": "table",
    "read_log": "access_log",
    "reorder": "rewriting",
    "savings": "column_savings",
    "write_table": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
