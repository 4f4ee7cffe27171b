"""Jobs that the hub cannot bring further. A deleted or cancelled one ends all the same; the status of any other says why it stands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.members import Members
from tuneyard_operators.kube import JOBSPEC, ApiError, Connection, Key

log = logging.getLogger(__name__)


class StalledJobs:
    """`look_again` has a job looked at once something of it was removed."""

    def __init__(self, connection: Connection, jobs: JobSpecs, members: Members, look_again: Callable[[Key], None]) -> None:
        self._connection = connection
        self._jobs = jobs
        self._members = members
        self._look_again = look_again

    async def handle(self, key: Key, error: Exception) -> None:
        """Do for a job what does not depend on the cause of `error`. Raises nothing."""
        item = self._jobs.items.get(key)
        if item is None:
            return
        try:
            ends = last_resort.is_deleted(item) or last_resort.is_cancelled(item)
            if ends and self._clean(key, item):
                return
            if last_resort.is_deleted(item):
                await self._jobs.remove_finalizer(key, item)
                return
            change = (last_resort.cancelled_status if ends else last_resort.stalled_status)(item, reason_of(error), datetime.now(UTC))
            if change:
                await self._connection.patch(JOBSPEC, *key, {"status": change}, subresource="status", brief=True)
        except ApiError as refusal:
            log.warning("%s/%s: %s", *key, refusal)
        except Exception:
            log.exception("%s/%s cannot even be said to be stalled", *key)

    def _clean(self, key: Key, item: dict[str, Any]) -> bool:
        """Have all objects of a job's attempts removed. True while some may be left."""
        left = False
        for cluster, name in last_resort.left_on_members(item):
            member = self._members.get(cluster)
            if member is None:
                left = left or not self._members.is_gone(cluster)
            elif not member.reachable or not member.is_clean_of(name):
                left = True
                if member.reachable:
                    member.lane.hand(name, partial(member.remove_orphan, name), then=partial(self._look_again, key))
            else:
                member.attempts.forget(name)
        return left
