"""Work of rank 0 for all ranks. Every rank learns of its failure: otherwise the others would wait for rank 0 in a collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuneyard.api import StorageError, TuneyardError
from tuneyard.training.distributed import World, broadcast_object

Made = TypeVar("Made")


def write_on_first(world: World, write: Callable[[], None], *, what: str) -> None:
    """Call `write` on rank 0. Collective. Raises StorageError on every rank if rank 0 failed; for an OSError the message names `what`."""
    failure: StorageError | None = None
    if world.is_first:
        try:
            write()
        except StorageError as error:
            failure = error
        except OSError as error:
            failure = StorageError(f"{what} could not be written: {error}", "free some space, then run again")
    failed = broadcast_object(world, failure)
    if failed is not None:
        raise failed


def made_on_first(world: World, make: Callable[[], Made]) -> Made:
    """What `make` returns on rank 0, on every rank: it must be small, and can be pickled. Collective. Raises rank 0's TuneyardError on
    every rank.
    """
    outcome: tuple[Made | None, TuneyardError | None] = (None, None)
    if world.is_first:
        try:
            outcome = (make(), None)
        except TuneyardError as error:
            outcome = (None, error)
    made: Made
    made, failure = broadcast_object(world, outcome)
    if failure is not None:
        raise failure
    return made
