"""A copy of all objects of one kind, kept up to date by list and watch."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from tuneyard_operators.kube.connection import Connection
from tuneyard_operators.kube.errors import ApiError, Expired, Unreachable
from tuneyard_operators.kube.kinds import Kind

Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""
Object = dict[str, Any]
OnChange = Callable[[Key, Object | None, Object | None], None]
"""Key, the object before (None: new), the object now (None: gone)."""

_LONGEST_PAUSE_S = 30.0
log = logging.getLogger(__name__)


def key_of(item: Mapping[str, Any]) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class Cache:
    """`items` by key, as far as the server has told. `synced` is set after the first list; `error` tells why it is not up to date.

    `keep` may cut objects down to what is needed, so that thousands of pods stay small.
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
    ) -> None:
        self.kind = kind
        self.items: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self.error: ApiError | None = None
        self._connection = connection
        self._namespace = namespace
        self._labels = labels
        self._on_change = on_change
        self._keep = keep

    async def run(self) -> None:
        """Follow the kind until cancelled, through every error of the server, with growing pauses."""
        pause_s = 0.5
        while True:
            try:
                version = await self._list()
                pause_s = 0.5
                while True:
                    version = await self._follow(version)
            except Expired:
                continue
            except ApiError as error:
                if self.error is None or str(self.error) != str(error):
                    log.warning("cannot follow %s of %s: %s", self.kind.plural, self._connection.server, error)
                self.error = error
                await asyncio.sleep(pause_s * (0.75 + random.random() / 2))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except Exception as error:  # a server with malformed answers must not stop the watches of other servers
                log.exception("cannot read %s of %s", self.kind.plural, self._connection.server)
                self.error = ApiError(0, f"its answers cannot be read: {type(error).__name__}: {error}")
                await asyncio.sleep(_LONGEST_PAUSE_S)

    def put(self, item: Object) -> None:
        """Take in what a write of ours has answered, before the watch tells of it, unless it has told something newer."""
        key = key_of(item)
        known = self.items.get(key)
        if known is None or _version(item) > _version(known):
            self._set(key, item)

    def drop(self, key: Key) -> None:
        """Take in that a deletion of ours is done, before the watch tells of it."""
        self._set(key, None)

    async def _list(self) -> str:
        answer = await self._connection.list(self.kind, self._namespace, labels=self._labels)
        found = {key_of(item): item for item in answer["items"]}
        for key in set(self.items) - set(found):
            self._set(key, None)
        for key, item in found.items():
            known = self.items.get(key)
            if known is None or known["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self._set(key, item)
        self.error = None
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> str:
        try:
            async for kind, item in self._connection.watch(self.kind, self._namespace, since=version, labels=self._labels):
                version = item["metadata"]["resourceVersion"]
                self.error = None
                if kind == "DELETED":
                    self._set(key_of(item), None)
                elif kind != "BOOKMARK":
                    known = self.items.get(key_of(item))
                    if known is None or _version(item) > _version(known):
                        self._set(key_of(item), item)
        except Unreachable:
            # A watch breaks in the ordinary way of things (a proxy, a restart): go on from the same place if that is possible.
            await self._connection.raw("/readyz")
        return version

    def _set(self, key: Key, item: Object | None) -> None:
        """Take in an object. One that makes `keep` or `on_change` raise is left out, or was told of in vain; the others go on."""
        old, kept = self.items.get(key), None
        try:
            kept = self._keep(item) if item is not None else None
        except Exception:
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


def _version(item: Mapping[str, Any]) -> int:
    # Resource versions of one object grow (KEP-5504 makes comparing them official).
    version = item["metadata"].get("resourceVersion", "0")
    return int(version) if version.isascii() and version.isdigit() and len(version) <= 20 else 0
