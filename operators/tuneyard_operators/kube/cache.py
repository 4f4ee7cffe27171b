"""Keeps a copy of all objects of one kind up to date, by list and watch."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from tuneyard.kubernetes import (
    ApiError,
    Expired,
    Key,
    Kind,
    Object,
    Unintelligible,
    Unreachable,
    backoff_s,
    is_newer,
    key_of,
    unreadable,
    without_room,
)
from tuneyard_operators.kube.connection import Connection
from tuneyard_operators.kube.shares import Shares

OnChange = Callable[[Key, Object | None, Object | None], None]
"""Key, the object before (None: new), the object now (None: gone)."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_SHORT_S = 1.0
"""A watch that ends sooner, without an event, was cut by the server or a proxy (client-go calls it a very short watch)."""
log = logging.getLogger(__name__)


class Cache:
    """The objects of one kind, `items`, by key. `synced` is set after the first list. `error` says why the copy is not up to date.

    `keep` returns the part of an object that the cache stores: thousands of pods then need little memory. `unreadable` says why objects
    are reduced (`tuneyard.kubernetes.reading`), or left out by `keep`. `shares`: the memory of each namespace; objects beyond it are
    reduced, and listed again once there is room.
    """

    def __init__(
        self,
        connection: Connection,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str = "",
        on_change: OnChange = lambda _key, _old, _new: None,
        keep: Callable[[Object], Object] = lambda item: item,
        shares: Shares | None = None,
    ) -> None:
        self.kind = kind
        self.items: dict[Key, Object] = {}
        self.unreadable: dict[Key, str] = {}
        self.synced = asyncio.Event()
        self._error: ApiError | None = None
        self._failing_since_s: float | None = None
        self._event_seen = False
        self._written: set[Key] | None = None
        """Objects that the hub has written since a list under way began, which may be older."""
        self._connection = connection
        self._namespace = namespace
        self._labels = labels
        self._on_change = on_change
        self._keep = keep
        self._shares = shares

    @property
    def error(self) -> ApiError | None:
        return self._error

    @error.setter
    def error(self, error: ApiError | None) -> None:
        self._error = error
        if error is None:
            self._failing_since_s = None
        elif self._failing_since_s is None:
            self._failing_since_s = time.monotonic()

    @property
    def lag_s(self) -> float:
        """Seconds since the first of the errors by which the copy is not up to date; 0 without an error."""
        return time.monotonic() - self._failing_since_s if self._failing_since_s is not None else 0.0

    async def run(self) -> None:
        """Follow the kind until cancelled, through every error of the server.

        Rounds that fail, or that end at once without an event, are followed by growing pauses.
        """
        loop = asyncio.get_running_loop()
        version, short = "", 0
        while True:
            began, failed, asked_s, self._event_seen = float("inf"), True, 0.0, False
            try:
                if not version:
                    version = await self._list()
                began = loop.time()
                version, failed = await self._follow(version), False
            except Expired:
                version, failed = "", False
            except ApiError as error:
                if self.error is None or str(self.error) != str(error):
                    log.warning("cannot follow %s of %s: %s", self.kind.plural, self._connection.server, error)
                self.error, version, asked_s = error, "", min(error.retry_after_s or 0.0, _LONGEST_PAUSE_S)
            except Exception as error:  # a server with malformed answers must not stop the watches of other servers
                log.exception("cannot read %s of %s", self.kind.plural, self._connection.server)
                self.error = Unintelligible(0, f"its answers cannot be read: {type(error).__name__}: {error}")
                version, asked_s = "", _LONGEST_PAUSE_S
            short = 0 if self._event_seen or loop.time() - began > _SHORT_S else short + 1
            pause_s = max(asked_s, _pause_s(max(short, 1) if failed else short - 1))
            if pause_s:
                await asyncio.sleep(pause_s)

    def put(self, item: Object) -> None:
        """Store the answer to a write before the watch reports it, unless the watch has reported a newer version."""
        key = key_of(item)
        known = self.items.get(key)
        if self._written is not None:
            self._written.add(key)
        if known is None or is_newer(item, known):
            self._set(key, item)

    def drop(self, key: Key) -> None:
        """Remove an object after its deletion, before the watch reports it."""
        self._set(key, None)

    async def _list(self) -> str:
        self._written = written = set[Key]()
        found, version = set[Key](), ""
        try:
            async for page in self._connection.pages(self.kind, self._namespace, labels=self._labels):
                version = str(page["metadata"]["resourceVersion"])
                for item in page["items"]:
                    found.add(key_of(item))
                    self._take_listed(item, written)
        finally:
            self._written = None
        for key in (set(self.items) | set(self.unreadable)) - found - written:
            self._set(key, None)
        self.error = None
        self.synced.set()
        return version

    def _take_listed(self, item: Object, written: set[Key]) -> None:
        """Store an object of a list. `written`: objects that the hub has written since the list began."""
        key = key_of(item)
        known = self.items.get(key)
        waits = self._shares is not None and key in self._shares.waiting
        if known is not None and key in written and is_newer(known, item):
            return
        if known is None or waits or known["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
            self._set(key, item)

    async def _follow(self, version: str) -> str:
        try:
            async for kind, item in self._connection.watch(self.kind, self._namespace, since=version, labels=self._labels):
                version = item["metadata"]["resourceVersion"]
                self.error, self._event_seen = None, True
                if kind == "DELETED":
                    self._set(key_of(item), None)
                elif kind != "BOOKMARK":
                    known = self.items.get(key_of(item))
                    if known is None or is_newer(item, known):
                        self._set(key_of(item), item)
                if self._shares is not None and self._shares.has_room_again:
                    return ""
        except Unintelligible:
            raise
        except Unreachable:
            # Watches break in normal operation (a proxy, a restart): resume from the same version if possible.
            await self._connection.raw("/readyz")
        return version

    def _set(self, key: Key, item: Object | None) -> None:
        """Store an object, or remove it (None), and report the change. An error of `keep` or `on_change` affects this object alone."""
        old, kept = self.items.get(key), None
        if self._shares is not None and (why := self._shares.take(key, item)) and item is not None:
            item = without_room(item, why)
        self.unreadable.pop(key, None)
        try:
            kept = self._keep(item) if item is not None else None
            if item is not None and (problems := unreadable(item)):
                self.unreadable[key] = "; ".join(f"{part}: {why}" for part, why in problems.items())
        except Exception as error:
            self.unreadable[key] = f"{type(error).__name__}: {error}"
            log.exception("%s %s/%s cannot be read, and is left out", self.kind.name, *key)
        if kept is None:
            self.items.pop(key, None)
        else:
            self.items[key] = kept
        if old is None and kept is None:
            return
        try:
            self._on_change(key, old, kept)
        except Exception:
            log.exception("%s %s/%s: its change could not be followed", self.kind.name, *key)


def _pause_s(rounds: int) -> float:
    """Seconds to pause after `rounds` failed rounds in a row: 0 after none, doubling with each, with a random spread of a quarter."""
    return backoff_s(_FIRST_PAUSE_S, rounds, _LONGEST_PAUSE_S) * (0.75 + random.random() / 2) if rounds > 0 else 0.0
