"""Failures and returns of machines. Each machine has its own random source, so that every policy meets the same failures."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tuneyard.federation.simulation.fleet import Slot
from tuneyard.federation.simulation.scenario import Failures
from tuneyard.federation.world import Member


class Outages:
    """An alternating renewal process for each node and each member (the slot with an empty node name)."""

    def __init__(self, members: Iterable[Member], failures: Failures, rng: np.random.Generator) -> None:
        self._failures = failures
        slots = [slot for member in members for slot in ((member.name, ""), *((member.name, node.name) for node in member.nodes))]
        self._rngs = dict(zip(slots, rng.spawn(len(slots)), strict=True))

    def first(self) -> list[tuple[float, Slot]]:
        """The first failure of each machine that ever fails, counted from 0."""
        found = [(self.next_failure(slot, 0.0), slot) for slot in self._rngs]
        return [(at, slot) for at, slot in found if at is not None]

    def next_failure(self, slot: Slot, now: float) -> float | None:
        """The next failure of a machine that works from `now` on. None: it never fails."""
        every_s = self._failures.node_every_s if slot[1] else self._failures.member_every_s
        return now + float(self._rngs[slot].exponential(every_s)) if every_s else None

    def back(self, slot: Slot, now: float) -> float:
        """The return of a machine that fails now."""
        return now + (self._failures.node_away_s if slot[1] else self._failures.member_away_s)
