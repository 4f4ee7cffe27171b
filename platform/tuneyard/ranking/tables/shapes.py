"""Shapes of a ranker's tables, for placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.tables.accesses import AccessCurve
from tuneyard.ranking.tables.placement import TableShape
from tuneyard.ranking.tables.wire import Wire

Rows = Literal["fp32", "fp16"]
WEIGHT_BYTES: Mapping[Rows, int] = {"fp32": 4, "fp16": 2}


def shapes_of(
    config: RankerConfig,
    *,
    ids_per_row: Mapping[str, float] | None = None,
    rows: Rows = "fp32",
    wire: Wire = "fp32",
    accesses: Mapping[str, AccessCurve] | None = None,
) -> tuple[TableShape, ...]:
    """A table for each sparse feature.

    `ids_per_row`: mean number of ids per row of data, by feature, as counted in the data; by default one for a bag, and `length` for a
    sequence. `accesses`: by feature, from `access_curves`; by default rows are read equally often.
    """
    shapes = []
    for feature in config.sparse:
        ids = (ids_per_row or {}).get(feature.name, float(feature.length or 1))
        if feature.length:
            ids = min(ids, float(feature.length))
        curve = (accesses or {}).get(feature.name)
        vectors = ids if feature.length else min(ids, 1.0)
        shapes.append(TableShape(feature.name, feature.rows, config.width, ids, vectors, WEIGHT_BYTES[rows], wire, curve))
    return tuple(shapes)
