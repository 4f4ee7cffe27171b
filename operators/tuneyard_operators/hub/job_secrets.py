"""The Secrets that jobs name: whether they exist while a job waits, and their values when it starts.

Each Secret is looked up once in a few seconds, however many jobs name it. No value is kept.
"""

from __future__ import annotations

import base64
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from tuneyard_operators.kube import SECRET, Connection, Key, Missing
from tuneyard_operators.rendering import SecretKey

_FRESH_S = 5.0
_AGAIN_S, _LONGEST_AGAIN_S = 10.0, 300.0
_LOOKS_PER_S = 10
"""Looks for missing Secrets of one namespace: a thousand that nobody makes must not take the requests of others."""
_MOST_KNOWN = 20_000


class JobSecrets:
    """`connection`: to the hub's API server, whose Secrets the hub may get and not list."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._known: OrderedDict[Key, tuple[float, frozenset[str]]] = OrderedDict()
        """Time of the last look at a Secret, and its keys; none if it does not exist."""
        self._missing: Counter[str] = Counter()
        """Number of such Secrets that do not exist, by namespace."""

    async def lacking(self, namespace: str, needed: list[SecretKey]) -> str:
        """What the first required key lacks, and what to do about it; empty if all exist."""
        for key in (each for each in needed if not each.optional):
            known = self._known.get((namespace, key.name))
            if known is None or self._clock() - known[0] > _FRESH_S:
                await self._get(namespace, key.name)
                known = self._known[namespace, key.name]
            if key.key not in known[1]:
                return _lack(namespace, key, exists=bool(known[1]))
        return ""

    def look_again_s(self, namespace: str) -> float:
        """Seconds until a job of a namespace, which waits for a Secret, looks again."""
        return min(_LONGEST_AGAIN_S, max(_AGAIN_S, self._missing[namespace] / _LOOKS_PER_S))

    async def values(self, namespace: str, needed: list[SecretKey]) -> dict[SecretKey, bytes]:
        """The values of these keys now. Raises Missing for the first required one that does not exist."""
        found = {name: await self._get(namespace, name) for name in dict.fromkeys(key.name for key in needed)}
        for key in needed:
            if key.key not in found[key.name] and not key.optional:
                raise Missing(404, _lack(namespace, key, exists=bool(found[key.name])))
        return {key: base64.b64decode(found[key.name][key.key]) for key in needed if key.key in found[key.name]}

    async def _get(self, namespace: str, name: str) -> Mapping[str, str]:
        try:
            data: Mapping[str, str] = (await self._connection.get(SECRET, namespace, name)).get("data") or {}
        except Missing:
            data = {}
        self._forget((namespace, name))
        self._known[namespace, name] = self._clock(), frozenset(data)
        self._missing[namespace] += not data
        while len(self._known) > _MOST_KNOWN:
            self._forget(next(iter(self._known)))
        return data

    def _forget(self, secret: Key) -> None:
        known = self._known.pop(secret, None)
        if known is not None and not known[1]:
            self._missing[secret[0]] -= 1


def _lack(namespace: str, key: SecretKey, *, exists: bool) -> str:
    have = "has no such key" if exists else "does not exist"
    return (
        f"waits for the Secret {key.name} in namespace {namespace}, key {key.key}, which {have}: "
        f"kubectl -n {namespace} create secret generic {key.name} --from-literal={key.key}=…"
    )
