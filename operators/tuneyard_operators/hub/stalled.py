"""Handles jobs that the hub cannot reconcile. A deleted or cancelled job is ended all the same; any other gets the reason in its status."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.actions import MayVanish
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.members import Members
from tuneyard_operators.kube import JOBSPEC, ApiError, Connection, Key

log = logging.getLogger(__name__)


class StalledJobs:
    """`look_again` queues a job to be reconciled once objects of it were removed."""

    def __init__(
        self, connection: Connection, jobs: JobSpecs, members: Members, look_again: Callable[[Key], None], may_vanish: MayVanish
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._members = members
        self._look_again = look_again
        self._may_vanish = may_vanish

    async def handle(self, key: Key, error: Exception) -> None:
        """End a deleted or cancelled job, or write `error` into the status of any other. Raises nothing."""
        item = self._jobs.items.get(key)
        if item is None:
            return
        try:
            ends = last_resort.is_deleted(item) or last_resort.is_cancelled(item)
            if ends and self._clean(key, item):
                return
            if last_resort.is_deleted(item):
                if not self._may_vanish(key):
                    return  # the sweep looks again
                await self._jobs.remove_finalizer(key, item)
                return
            change = (last_resort.cancelled_status if ends else last_resort.stalled_status)(item, reason_of(error), datetime.now(UTC))
            if change:
                await self._connection.patch(JOBSPEC, *key, {"status": change}, subresource="status", brief=True)
        except ApiError as refusal:
            log.warning("%s/%s: %s", *key, refusal)
        except Exception:
            log.exception("%s/%s is stalled, and its status cannot be written", *key)

    def _left_on_members(self, key: Key, item: dict[str, Any]) -> set[tuple[str, str]]:
        """Member and name of each attempt that may have objects: by the status, and where it cannot be read by the objects' labels."""
        found = set(last_resort.left_on_members(item))
        if not self._jobs.is_readable(key):
            found |= {(member.name, name) for member in self._members.all() for name, job in member.leftovers().items() if job == key}
        return found

    def _clean(self, key: Key, item: dict[str, Any]) -> bool:
        """Queue the removal of all objects of a job's attempts. True while some may be left."""
        left = False
        for cluster, name in self._left_on_members(key, item):
            member = self._members.get(cluster)
            if member is None:
                left = left or not self._members.is_gone(cluster)
            elif not member.reachable or not member.is_clean_of(name):
                left = True
                if member.reachable:
                    member.lane.hand(name, partial(member.remove_orphan, name), then=partial(self._look_again, key), owner=key[0])
            else:
                member.attempts.forget(name)
        return left
