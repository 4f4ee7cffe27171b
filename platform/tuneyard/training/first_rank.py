"""Work that rank 0 does for all, whose failure every rank hears of: one that ends alone leaves the others waiting in a collective."""

from __future__ import annotations

from collections.abc import Callable

from tuneyard.api import StorageError
from tuneyard.training.distributed import World, broadcast_object


def write_on_first(world: World, write: Callable[[], None], *, what: str) -> None:
    """Call `write` on rank 0. Collective. Raises StorageError on every rank if rank 0 could not; an OSError says that `what` could not be
    written."""
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
