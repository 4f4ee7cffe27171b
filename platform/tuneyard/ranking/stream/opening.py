"""From a table's URI to a stream of its rows, with the workers that prepare them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tuneyard.api import BadInput
from tuneyard.data.cache import cache_root
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.shard_files import remove_leftovers
from tuneyard.data.shared.courier import shared_here
from tuneyard.data.stream.claims import Claims
from tuneyard.data.stream.opening import LEFT_TO_SERVICE_S, announced, worker_count
from tuneyard.data.stream.rows import Stream
from tuneyard.data.tables import open_table
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.flattening import Flattening
from tuneyard.ranking.stream.recipe import TableRecipe
from tuneyard.ranking.stream.rows import StreamedTable
from tuneyard.ranking.stream.shards import TableShard
from tuneyard.ranking.stream.splits import CutTable

KEPT_BYTES = 2 << 30
"""Bytes of shards that stay on a disk; at least those of four windows."""
_KEPT_WINDOWS = 4


def open_table_stream(
    uri: str,
    config: RankerConfig,
    *,
    seed: int,
    shuffle: bool = True,
    limit: int | None = None,
    workers: int | Literal["auto"] = "auto",
    service: Path | None = None,
    cache_dir: str | Path | None = None,
) -> StreamedTable:
    """The rows of the Parquet table at `uri`. Only footers are read. `workers`: processes of this machine that prepare rows. `service`: the
    folder where this machine's service looks for streams; None: no service.

    Raises BadInput like `open_table`, and for a table without rows; StorageError if it is unreachable.
    """
    table, flattening = open_table(uri), Flattening(config, config.transforms)
    cut = CutTable.of(table, config, limit)
    if not cut.splits:
        raise BadInput(f"{uri}: the table has no row", "name a table with rows; a day without clicks is left out")
    windows = cut.windows(seed, shuffle=shuffle)
    largest = max(split.size_bytes for split in cut.splits)
    kept = max(KEPT_BYTES, _KEPT_WINDOWS * windows.most * largest)
    recipe = TableRecipe(table, flattening, cut.firsts, kept)
    recipe.check()
    folder = cache_root(cache_dir) / "shards"
    remove_leftovers(folder)
    claims = Claims(folder / "claims" / recipe.stream_key)
    leave_s = LEFT_TO_SERVICE_S if service is not None else 0.0
    stream: Stream[TableShard] = Stream(uri, cut.splits, recipe, windows, folder, claims, 0.0, leave_s, shared_here())
    announce = announced(stream, 0 if service is not None else worker_count(workers), service)
    return StreamedTable(stream, recipe, PreparedOrder(windows, cut.rows), announce)
