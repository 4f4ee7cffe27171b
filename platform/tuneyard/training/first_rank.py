"""Work of rank 0 for all ranks. Every rank learns of its failure: otherwise the others would wait for rank 0 in a collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuneyard.api import StorageError, TuneyardError
from tuneyard.training.distributed import World, broadcast_object

Made = TypeVar("Made")


def write_on_first(world: World, write: Callable[[], None], *, what: str) -> None:
    """Call `write` on rank 0. Collective. Raises rank 0's TuneyardError on every rank; an OSError becomes a StorageError about `what`."""

    def written() -> None:
        try:
            write()
        except OSError as error:
            raise StorageError(f"{what} could not be written: {error}", "free some space, then run again") from error

    made_on_first(world, written)


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
