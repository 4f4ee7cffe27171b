"""Embedding tables of a ranker: whole in one process, or cut into shards that ranks own, after TorchRec (Ivchenko et al. 2022).

`whole` has a parameter for each table. `sharded` sends ids to the ranks that own the rows, sums embeddings there, and sends the sums back.
Gradients take the same way, and `adagrad` updates rows at their owner.

- `placement` decides, without torch, which rank owns which cells, by their costs and by the access frequencies in `accesses`.
- `flight` is one batch between ranks: `routes` is its sender's side, `owned` the owner's, `exchange` the collectives, and `wire` what
  embeddings and gradients are sent as.
- `initial` draws weights that do not depend on the placement. `ids` turns ids into rows of tables.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.ranking.tables.ids import hashed
    from tuneyard.ranking.tables.names import table_names
    from tuneyard.ranking.tables.placement import Costs, Placement, Shard, TableShape, placed
    from tuneyard.ranking.tables.shapes import shapes_of
    from tuneyard.ranking.tables.sharded import PREFETCHED, ShardedTables
    from tuneyard.ranking.tables.tables import Tables
    from tuneyard.ranking.tables.whole import WholeTables

_AT = {
    "hashed": "ids",
    "table_names": "names",
    **dict.fromkeys(("Costs", "Placement", "Shard", "TableShape", "placed"), "placement"),
    "shapes_of": "shapes",
    **dict.fromkeys(("PREFETCHED", "ShardedTables"), "sharded"),
    "Tables": "tables",
    "WholeTables": "whole",
}
__all__ = [
    "PREFETCHED",
    "Costs",
    "Placement",
    "Shard",
    "ShardedTables",
    "TableShape",
    "Tables",
    "WholeTables",
    "hashed",
    "placed",
    "shapes_of",
    "table_names",
]


def __getattr__(name: str) -> Any:
    if name not in _AT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuneyard.ranking.tables.{_AT[name]}"), name)
