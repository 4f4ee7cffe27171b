"""Makes the rows of an evaluation before its forward passes, on all ranks.

A rank whose machine has to make more rows than others would keep them waiting in a collective, for longer than its timeout allows.
"""

from __future__ import annotations

from typing import Any

from tuneyard import data
from tuneyard.api import TuneyardError
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.side_thread import SideThread

_BEAT_S = 30.0


def make_rows(rows: Any, world: World) -> None:
    """Make the rows that are not made yet. Collective. Raises the error of a rank (BadInput, StorageError) on every rank."""
    missing = [each for each in data.made_for_evaluation(rows) if each.counted is None]  # alike on all ranks
    if not missing:
        return

    def make() -> None:
        for each in missing:
            each.build()

    if world.size == 1:
        make()
        return
    work = SideThread(make, world.device)
    while True:
        told = gather_objects(world, _outcome(work))
        for _, error in told:
            if error is not None:
                raise error
        if all(ended for ended, _ in told):
            return


def _outcome(work: SideThread[None]) -> tuple[bool, TuneyardError | None]:
    """Whether the work has ended, and its failure."""
    if not work.wait(_BEAT_S):
        return False, None
    try:
        work.result()
    except TuneyardError as error:
        return True, error
    return True, None
