"""Reads the storage keys that a member gives to every container: `spec.env` of its Cluster, with Secrets of the member.

The pods of a job on the member have the same keys, so that reading its output with them shows its author nothing new.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Cluster, EnvVar
from tuneyard.cluster.storage_access import KEYS
from tuneyard_operators.kube import SECRET, ApiError, Connection
from tuneyard_operators.logs.limits import Limits

Reach = Callable[[Cluster], Awaitable[Connection]]
"""Connects to a member. Raises ApiError."""
_TTL_S, _REFUSAL_TTL_S = 60.0, 20.0
_MEMBER_S = 10.0


class NoKeys(Exception):
    """The reason why no keys of a member are known."""


class MemberKeys:
    """The keys of members, or the reasons why there are none, each kept for some seconds."""

    def __init__(self, reach: Reach, limits: Limits) -> None:
        self._reach = reach
        self._limits = limits
        self._known: dict[str, tuple[str, float, Mapping[str, str] | NoKeys]] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, item: Mapping[str, Any]) -> Mapping[str, str]:
        """The keys of the member of a Cluster object. Raises NoKeys; Problem (429) if too many queries wait for this member."""
        name = item["metadata"]["name"]
        with self._limits.of(f"the member {name}"):
            async with self._asking[name]:
                version, until, found = self._known.get(name, ("", 0.0, NoKeys()))
                if version != item["metadata"]["resourceVersion"] or until < time.monotonic():
                    found = await self._ask(name, item)
                    ttl_s = _REFUSAL_TTL_S if isinstance(found, NoKeys) else _TTL_S
                    self._known[name] = item["metadata"]["resourceVersion"], time.monotonic() + ttl_s, found
        if isinstance(found, NoKeys):
            raise found
        return found

    async def _ask(self, name: str, item: Mapping[str, Any]) -> Mapping[str, str] | NoKeys:
        try:
            cluster = Cluster.model_validate({key: item[key] for key in ("metadata", "spec")}, extra="ignore")
            variables = [each for each in cluster.spec.env if each.name in KEYS]
            async with asyncio.timeout(_MEMBER_S):
                found = await self._values(cluster, variables)
        except ValidationError:
            return NoKeys(f"the Cluster {name} cannot be read")
        except TimeoutError:
            return NoKeys(f"the member {name} does not answer")
        except ApiError as error:
            return NoKeys(f"the member {name} gives no keys: {error.message[:300]}")
        return found if "AWS_ACCESS_KEY_ID" in found else NoKeys(f"the Cluster {name} has no keys in spec.env")

    async def _values(self, cluster: Cluster, variables: list[EnvVar]) -> dict[str, str]:
        found = {each.name: each.value for each in variables if each.value}
        references = {each.name: each.value_from.secret_key_ref for each in variables if each.value_from is not None}
        if not references:
            return found
        connection = await self._reach(cluster)
        try:
            for name in sorted({reference.name for reference in references.values()}):
                data = (await connection.get(SECRET, cluster.spec.namespace, name)).get("data") or {}
                for variable, reference in references.items():
                    if reference.name == name and reference.key in data:
                        found[variable] = base64.b64decode(data[reference.key]).decode(errors="replace")
        finally:
            await connection.close()
        return found
