"""Checks whether a member can be reached: asks its API server every few seconds; the time of the last answer is the heartbeat."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tuneyard_operators.hub.clock import seconds_since, written
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.kube import ApiError, Cache, Connection, Forbidden, NotServed, Unintelligible, Unreachable

log = logging.getLogger(__name__)
_EVERY_S = 5.0
_OWN_LOOK_S = 10.0


def away_for_s(heartbeat: str | None, now: datetime, failing_since: float | None) -> float:
    """Seconds since the member's last heartbeat, which outlives restarts of the hub.

    A hub that was down for an hour heard no heartbeat either. Until its own requests have failed for `_OWN_LOOK_S`, the result is therefore
    the time since the first failure (`failing_since`, monotonic clock).
    """
    tried_s = time.monotonic() - failing_since if failing_since is not None else 0.0
    if heartbeat is None or tried_s < _OWN_LOOK_S:
        return tried_s
    return seconds_since(heartbeat, now)


class Heartbeat:
    """The heartbeat of the member `name`. `on_change` is called when the member becomes usable or unusable."""

    def __init__(
        self, name: str, connection: Connection, caches: Sequence[Cache], last: str | None, *, on_change: Callable[[], None]
    ) -> None:
        self.last = last
        self.error = ""
        """Why the member cannot be used, in words for its administrator; empty if it can."""
        self.refused = False
        """Whether the member refuses the hub's credentials."""
        self.deaf = False
        """Whether the member answers, but with what the hub cannot read: its attempts may well run."""
        self._name = name
        self._connection = connection
        self._caches = caches
        self._on_change = on_change
        self._failing_since: float | None = None
        self._deaf_at: float | None = None

    def away_s(self, now: datetime) -> float:
        """Seconds since the last heartbeat, or since the hub was deaf: what it cannot read does not count against attempts."""
        if self.deaf:
            return 0.0
        away_s = away_for_s(self.last, now, self._failing_since)
        return away_s if self._deaf_at is None else min(away_s, time.monotonic() - self._deaf_at)

    async def run(self) -> None:
        while True:
            before, self.refused = self.error, False
            self.error = await self._ask()
            if not self.error:
                self.last, self._failing_since = written(datetime.now(UTC)), None
            elif self._failing_since is None:
                self._failing_since = time.monotonic()
            if bool(before) != bool(self.error):
                log.warning("member %s %s", self._name, f"cannot be used: {self.error}" if self.error else "can be reached")
                self._on_change()
            await asyncio.sleep(_EVERY_S)

    async def _ask(self) -> str:
        """Why the member cannot be used; empty if it can."""
        why = await self._silence()
        # A member that answers counts as usable only once every cache follows it again: until then the caches are outdated.
        broken = [] if why else [cache for cache in self._caches if cache.error is not None]
        self.deaf = bool(broken) and all(isinstance(cache.error, Unintelligible) for cache in broken)
        if self.deaf:
            self._deaf_at = time.monotonic()
        return why or next(map(_lack, broken), "")

    async def _silence(self) -> str:
        """Why the member does not answer; empty if it does. It takes a request: a silent watch may be that of a dead server."""
        try:
            async with asyncio.timeout(_EVERY_S * 2):
                await self._connection.raw("/readyz")
        except TimeoutError:
            return f"{self._connection.server} does not answer: timed out"
        except Forbidden as error:
            self.refused = True
            return f"its credentials are refused ({error.message}); put fresh ones into the Secret of Cluster {self._name}"
        except Unreachable as error:
            return error.message
        except ApiError as error:
            return str(error)
        except Exception as error:
            log.exception("member %s cannot be asked", self._name)
            return reason_of(error)
        return ""


def _lack(cache: Cache) -> str:
    """Why a cache cannot follow the member, in words for its administrator."""
    if isinstance(cache.error, NotServed):
        return f"it does not serve {cache.kind.plural} ({cache.kind.api_version}): install KubeRay and the chart tuneyard-member there"
    if isinstance(cache.error, Forbidden):
        return f"its credentials do not let the hub list {cache.kind.plural}: {cache.error.message}"
    return f"its {cache.kind.plural} cannot be followed: {cache.error}"
