"""How the rows of a task are made: chosen on rank 0 for all ranks, and kept from the attempt that a checkpoint resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard import data
from tuneyard.api import TuneyardError
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.first_rank import made_on_first
from tuneyard.training.request import TrainRequest


def ways_of(request: TrainRequest, world: World, tokenizer: Any, before: Mapping[str, Any] | None) -> data.Ways:
    """The way of each data set. Collective. `before`: what the checkpoint to resume says, if any. Raises BadInput, StorageError."""
    task = request.task
    how: Any = {"objective": task.objective, "seed": task.seed}
    kept: data.Ways = {}
    steps = task.steps
    if before is not None:
        kept = data.ways_before(before.get("cursors", {}), before.get("ways"))
        steps = steps if kept else None  # a checkpoint without cursors is older than streams: its data were prepared
    prepared = None if world.size == world.local_size else _prepared_everywhere(request, world, tokenizer, how)
    return made_on_first(world, lambda: data.choose_ways(task.data, tokenizer, steps=steps, kept=kept, prepared=prepared, **how))


def _prepared_everywhere(request: TrainRequest, world: World, tokenizer: Any, how: Any) -> frozenset[str]:
    """Names of the data sets that every machine has prepared. Collective. Raises the error of a machine on every rank."""
    found: frozenset[str] = frozenset()
    failed: TuneyardError | None = None
    if world.is_first_here:
        try:
            found = data.prepared_here(request.task.data, tokenizer, **how)
        except TuneyardError as error:
            failed = error
    told = gather_objects(world, (found, failed) if world.is_first_here else None)
    machines = [each for each in told if each is not None]
    for _, failure in machines:
        if failure is not None:
            raise failure
    return frozenset.intersection(*(names for names, _ in machines))
