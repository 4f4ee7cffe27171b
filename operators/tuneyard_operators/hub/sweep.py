"""Sweeps once a minute: removes objects on members without a JobSpec, and reconciles jobs whose event may have been missed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.members import Members
from tuneyard_operators.kube import Key

log = logging.getLogger(__name__)
_EVERY_S = 60.0
_MOST_LOOKS = 6000
"""Most jobs that one sweep reconciles, chosen at random: a hundred thousand would be too many."""
Suspects = set[tuple[str, str]]
"""Member and attempt."""


class Sweep:
    """`look_again` queues a job to be reconciled after some seconds."""

    def __init__(self, jobs: JobSpecs, members: Members, *, look_again: Callable[[Key, float], None]) -> None:
        self._jobs = jobs
        self._members = members
        self._look_again = look_again

    async def run(self) -> None:
        await self._jobs.synced.wait()
        suspects: Suspects = set()
        while True:
            suspects = self._remove_orphans(suspects)
            self._spread_looks()
            await asyncio.sleep(_EVERY_S)

    def _remove_orphans(self, before: Suspects) -> Suspects:
        """Remove objects that a killed hub, or an outage of a member, has left behind. Returns new suspects, for the next sweep."""
        suspects: Suspects = set()
        for member in self._members.all():
            try:
                suspects |= self._orphans(member, before)
            except Exception:  # one broken member must not stop the others
                log.exception("leftovers on %s cannot be listed", member.name)
        return suspects

    def _orphans(self, member: Member, before: Suspects) -> Suspects:
        suspects = set()
        for name, key in member.leftovers().items() if member.reachable else ():
            if self._is_orphan(name, key):
                suspects.add((member.name, name))
                # Remove it only the second time: the first time, the watch may not have reported the JobSpec's last write yet.
                if (member.name, name) in before:
                    if not member.is_clean_of(name):
                        log.warning("removing %s on %s: no JobSpec knows it", name, member.name)
                    member.lane.hand(name, partial(member.remove_orphan, name), then=lambda: None, owner=key[0])
        return suspects

    def _is_orphan(self, name: str, key: Key) -> bool:
        item = self._jobs.items.get(key)
        if item is not None and not self._jobs.is_readable(key):
            return False  # its attempts are not known
        return item is None or all(known != name for _, known in last_resort.left_on_members(item))

    def _spread_looks(self) -> None:
        """Queue unsettled jobs, spread over the time until the next sweep. Most need no change, and cost little."""
        unsettled = [key for key, item in self._jobs.items.items() if not last_resort.is_settled(item)]
        chosen = random.sample(unsettled, min(len(unsettled), _MOST_LOOKS))
        for number, key in enumerate(chosen):
            self._look_again(key, _EVERY_S * number / len(chosen))
