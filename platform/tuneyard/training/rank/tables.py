"""The tables of a rank task, placed over the ranks of its training."""

from __future__ import annotations

import torch

from tuneyard.api import BadInput, RankTask
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.ranking import FlatRows, Placement, RankerConfig, ShardedTables, placed, shapes_of
from tuneyard.training.distributed import World, gather_objects

_SHARE = 0.7
"""Of a device's memory, or of a rank's part of its host's, that tables may take."""


def refuse_too_large(task: RankTask, config: RankerConfig, world: World) -> None:
    """Collective. Raises BadInput, before rows are read, for tables that all ranks together have no room for."""
    limit = min(gather_objects(world, _limit_bytes(world, on_host=task.tables.offload == "cpu")))
    shapes = shapes_of(config, rows=task.tables.rows)
    total = sum(shape.bytes_of(shape.rows, shape.width) for shape in shapes)
    if total > limit * world.size:
        largest = max(shapes, key=lambda shape: shape.bytes_of(shape.rows, shape.width))
        raise BadInput(
            f"tables of {total / 1e9:,.1f} GB do not fit: {world.size} workers have {limit * world.size / 1e9:,.1f} GB for them",
            f"take more workers, set tables.rows to fp16, or give {largest.name} (the largest table) fewer rows",
        )


def placed_tables(task: RankTask, config: RankerConfig, rows: FlatRows, world: World, *, grad_accum: int) -> ShardedTables:
    """Collective. Every rank makes its own shards; which they are follows from the data and the settings alone.

    Raises BadInput where the tables are too large for all ranks together.
    """
    wanted = task.tables
    limit = min(gather_objects(world, _limit_bytes(world, on_host=wanted.offload == "cpu")))
    shapes = shapes_of(config, ids_per_row=rows.ids_per_row, rows=wanted.rows)
    try:
        placement = placed(shapes, world.size, memory_bytes=limit, how=wanted.sharding)
    except BadInput as error:
        largest = max(shapes, key=lambda shape: shape.bytes_of(shape.rows, shape.width))
        raise BadInput(
            error.cause,
            f"take more workers, set tables.rows to fp16, or give {largest.name} (the largest table) fewer rows"
            + ("" if wanted.sharding == "auto" else "; tables.sharding: auto cuts large tables"),
        ) from error
    device = "cpu" if wanted.offload == "cpu" else world.device
    # The trainer takes all micro-batches of a step before it computes the first, and one more is on its way.
    ahead = grad_accum + 2
    return ShardedTables(config, placement, seed=task.seed, rows=wanted.rows, device=device, most_ahead=ahead)


def _limit_bytes(world: World, *, on_host: bool) -> int:
    if world.device.type == "cuda" and not on_host:
        return int(_SHARE * torch.cuda.get_device_properties(world.device).total_memory)
    return int(_SHARE * machine_memory_gb() * 1e9 / world.local_size)


def load_account(placement: Placement) -> dict[str, object]:
    """What a report tells of a placement: how many shards, and the largest load and memory over their means."""
    loads, memory = placement.loads(), placement.memory()
    return {
        "shards": len(placement.shards),
        "largest_load_over_mean": max(loads) / (sum(loads) / len(loads)) if sum(loads) else 1.0,
        "largest_memory_over_mean": max(memory) / (sum(memory) / len(memory)) if sum(memory) else 1.0,
        "memory_gb": [each / 1e9 for each in memory],
    }
