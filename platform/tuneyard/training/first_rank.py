"""Work of rank 0 for all ranks. Every rank learns of its failure: otherwise the others would wait for rank 0 in a collective.

Rank 0 works in a thread, and tells the others every now and then that it still does: a collective that lasts longer than the timeout of
the group would end the run, however large the model is that rank 0 saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuneyard.api import StorageError, TuneyardError
from tuneyard.training.distributed import World, broadcast_object
from tuneyard.training.side_thread import SideThread

Made = TypeVar("Made")
_BEAT_S = 30.0


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
    if world.size == 1:
        return make()
    work = SideThread(make, world.device) if world.is_first else None
    while True:
        outcome = broadcast_object(world, _outcome(work) if work is not None else None)
        if outcome is not None:
            break
    made: Made
    made, failure = outcome
    if failure is not None:
        raise failure
    return made


def _outcome(work: SideThread[Made]) -> tuple[Made | None, TuneyardError | None] | None:
    """What rank 0 tells the others: None while it works."""
    if not work.wait(_BEAT_S):
        return None
    try:
        return work.result(), None
    except TuneyardError as error:
        return None, error
