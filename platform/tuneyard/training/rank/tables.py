"""The tables of a rank task, placed over the ranks of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.api import BadInput, RankTask
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.ranking import Placement, RankerConfig, ShardedTables, TableShape, access_curves, placed, shapes_of
from tuneyard.training.distributed import COLLECTIVE_TIMEOUT, World, broadcast_object, gather_objects
from tuneyard.training.rank.rows import TableRows

_SHARE = 0.7
"""Share of a device's memory, or of a rank's part of its host's memory, for tables."""


def refuse_too_large(task: RankTask, config: RankerConfig, world: World) -> None:
    """Collective. Raises BadInput, before rows are read, if all ranks together have no room for the tables."""
    limit = _limit_bytes(task, world)
    shapes = shapes_of(config, rows=task.tables.rows)
    total = sum(shape.bytes_of(shape.rows, shape.width) for shape in shapes)
    if total > limit * world.size:
        room = f"{world.size} workers have {limit * world.size / 1e9:,.1f} GB for them"
        raise _too_large(f"tables of {total / 1e9:,.1f} GB do not fit: {room}", task, shapes)


def placed_tables(task: RankTask, config: RankerConfig, rows: TableRows, world: World, *, grad_accum: int) -> ShardedTables:
    """Collective. Every rank makes its own shards; the placement follows only from the data and the settings. `close_tables` ends them.

    Raises BadInput if the tables are too large for all ranks together.
    """
    wanted, limit = task.tables, _limit_bytes(task, world)
    accesses = broadcast_object(world, access_curves(rows.counted) if world.is_first else None)
    shapes = shapes_of(config, ids_per_row=rows.ids_per_row, rows=wanted.rows, wire=wanted.exchange, accesses=accesses)
    try:
        placement = placed(shapes, world.size, memory_bytes=limit, how=wanted.sharding)
    except BadInput as error:
        raise _too_large(error.cause, task, shapes) from error
    device = "cpu" if wanted.offload == "cpu" else world.device
    # The trainer takes all micro-batches of a step before it computes the first, and one more is prefetched.
    ahead = grad_accum + 2
    # Tables have their own group: their exchanges run beside those of gradients, whose order DDP or DeepSpeed chooses.
    group = dist.new_group(timeout=COLLECTIVE_TIMEOUT) if world.size > 1 else None
    how: Any = {"rows": wanted.rows, "wire": wanted.exchange, "device": device}
    return ShardedTables(config, placement, seed=task.seed, group=group, most_ahead=ahead, **how)


def close_tables(tables: ShardedTables) -> None:
    """Destroy the tables' process group."""
    if tables.group is not None:
        dist.destroy_process_group(tables.group)


def _too_large(cause: str, task: RankTask, shapes: Sequence[TableShape]) -> BadInput:
    largest = max(shapes, key=lambda shape: shape.bytes_of(shape.rows, shape.width))
    cut = "" if task.tables.sharding == "auto" else "; tables.sharding: auto cuts large tables"
    return BadInput(cause, f"take more workers, set tables.rows to fp16, or give {largest.name} (the largest table) fewer rows{cut}")


def _limit_bytes(task: RankTask, world: World) -> int:
    """Collective. The bytes of each rank's memory for tables."""
    if world.device.type == "cuda" and task.tables.offload != "cpu":
        own = _SHARE * torch.cuda.get_device_properties(world.device).total_memory
    else:
        own = _SHARE * machine_memory_gb() * 1e9 / world.local_size
    return int(min(gather_objects(world, own)))


def load_account(placement: Placement) -> dict[str, object]:
    """A placement for the report: number of shards, the largest load and memory over their means, and per table the share of accesses of
    its hottest rows, and the share of rows that no training row reads.
    """
    loads, memory = placement.loads(), placement.memory()
    return {
        "shards": len(placement.shards),
        "largest_load_over_mean": max(loads) / (sum(loads) / len(loads)) if sum(loads) else 1.0,
        "largest_memory_over_mean": max(memory) / (sum(memory) / len(memory)) if sum(memory) else 1.0,
        "memory_gb": [each / 1e9 for each in memory],
        "accesses": {
            table.name: {"hottest_1_percent": table.accesses.hottest, "rows_never_read": table.accesses.unread}
            for table in placement.tables
            if table.accesses is not None
        },
    }
