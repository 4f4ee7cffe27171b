"""An API server in memory, for a hub in the same process: objects, versions, finalizers, watches; no schemas, no rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from copy import deepcopy
from typing import Any
from uuid import uuid4

import msgspec

from tuneyard.kubernetes import read_object
from tuneyard_operators.kube import AlreadyExists, Conflict, Kind, Missing
from tuneyard_operators.kube.cache import Key, Object, key_of

Watcher = tuple[str, asyncio.Queue[tuple[str, Object]]]
NOON = "2026-11-21T12:00:00Z"


class MemoryApi:
    """Stands where a `Connection` stands, and reads what it sends as one does. `refuse` may raise before a request is done: verb, kind,
    name.
    """

    server = "memory"
    expires_s: float | None = None

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, Object]] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Verb, kind (`JobSpec/status`) and name of each write."""
        self.refuse: Callable[[str, Kind, str], None] = lambda _verb, _kind, _name: None
        self.created_at = NOON
        """Time of creation of each object."""
        self.answers_after_s = 0.0
        """Time from a patch to its answer: watches tell of it before."""
        self._version = 0
        self._watchers: list[Watcher] = []
        self._events: list[tuple[int, str, str, Object]] = []

    def may_write(self) -> bool:
        return True

    async def close(self) -> None:
        pass

    async def raw(self, _path: str) -> bytes:
        return b"ok"

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return _sent(self._of(kind, (namespace or "", name)))

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> Object:
        found = [item for key, item in self._all(kind).items() if namespace in (None, key[0]) and _selected(item, labels)]
        return {"items": [_sent(item) for item in found], "metadata": {"resourceVersion": str(self._version)}}

    async def pages(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> AsyncIterator[Object]:
        yield await self.list(kind, namespace, labels=labels)

    async def watch(
        self, kind: Kind, namespace: str | None, *, since: str, labels: str = "", **_options: Any
    ) -> AsyncIterator[tuple[str, Object]]:
        watcher: Watcher = (kind.name, asyncio.Queue())
        for version, name, event, item in self._events:
            if name == kind.name and version > int(since):
                watcher[1].put_nowait((event, item))
        self._watchers.append(watcher)
        try:
            while True:
                event, item = await watcher[1].get()
                if namespace in (None, item["metadata"].get("namespace", "")) and _selected(item, labels):
                    yield event, _sent(item)
        finally:
            self._watchers.remove(watcher)

    async def create(self, kind: Kind, namespace: str | None, body: Mapping[str, Any], **_options: Any) -> Object:
        item = deepcopy({"apiVersion": kind.api_version, "kind": kind.name, **body})
        metadata = item["metadata"] = {**item["metadata"], "uid": str(uuid4()), "generation": 1, "creationTimestamp": self.created_at}
        if kind.namespaced:
            metadata["namespace"] = namespace
        await self._arrive("create", kind, "", metadata["name"])
        if key_of(item) in self._all(kind):
            raise AlreadyExists(409, "it exists")
        return self._store("ADDED", kind, item)

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = "", **_options: Any
    ) -> Object:
        await self._arrive("patch", kind, subresource, name)
        before = self._of(kind, (namespace or "", name))
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, before["metadata"]["resourceVersion"]):
            raise Conflict(409, "it has changed")
        item = _merged(before, body)
        if item == before:
            return _sent(before)
        if item.get("spec") != before.get("spec"):
            item["metadata"]["generation"] += 1
        going = item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers")
        answer = self._remove(kind, item) if going else self._store("MODIFIED", kind, item)
        await asyncio.sleep(self.answers_after_s)
        return answer

    async def delete(self, kind: Kind, namespace: str | None, name: str) -> bool:
        await self._arrive("delete", kind, "", name)
        item = self._all(kind).get((namespace or "", name))
        if item is None:
            return True
        if item["metadata"].get("finalizers"):
            self._store("MODIFIED", kind, _merged(item, {"metadata": {"deletionTimestamp": NOON}}))
            return False
        self._remove(kind, item)
        return True

    async def _arrive(self, verb: str, kind: Kind, subresource: str, name: str) -> None:
        await asyncio.sleep(0)
        self.refuse(verb, kind, name)
        self.requests.append((verb, f"{kind.name}/{subresource}".rstrip("/"), name))

    def _all(self, kind: Kind) -> dict[Key, Object]:
        return self.objects.setdefault(kind.name, {})

    def _of(self, kind: Kind, key: Key) -> Object:
        if key not in self._all(kind):
            raise Missing(404, f"no {kind.name} {key[1]}")
        return self._all(kind)[key]

    def _store(self, event: str, kind: Kind, item: Object) -> Object:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._all(kind)[key_of(item)] = item
        return self._tell(event, kind, item)

    def _remove(self, kind: Kind, item: Object) -> Object:
        self._version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        del self._all(kind)[key_of(item)]
        return self._tell("DELETED", kind, item)

    def _tell(self, event: str, kind: Kind, item: Object) -> Object:
        self._events.append((self._version, kind.name, event, deepcopy(item)))
        for name, queue in self._watchers:
            if name == kind.name:
                queue.put_nowait((event, item))
        return _sent(item)


def _sent(item: Object) -> Object:
    """An object as a `Connection` reads it. A part may be a `msgspec.Raw`: JSON of any depth."""
    return read_object(msgspec.json.encode(item), msgspec.json.decode)


def _merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """JSON merge patch (RFC 7396)."""
    after = {**deepcopy(dict(before))}
    for name, value in change.items():
        if value is None:
            after.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(after.get(name), Mapping):
            after[name] = _merged(after[name], value)
        else:
            after[name] = deepcopy(value)
    return after


def _selected(item: Object, labels: str) -> bool:
    own = item["metadata"].get("labels") or {}
    for each in filter(None, labels.split(",")):
        if each.startswith("!"):
            if each[1:] in own:
                return False
        elif "=" in each:
            name, _, value = each.partition("=")
            if own.get(name) != value:
                return False
        elif each not in own:
            return False
    return True
