"""Looks on HDFS for the data that runs wait for, over WebHDFS, as the user that the run will be there.

The hub asks name nodes alone that its administrators allow: otherwise an author could reach servers that only the hub can reach. It sends
no key, follows no redirect, and tells nothing but whether a path exists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from tuneyard.api import StorageError
from tuneyard.storage.hdfs_store import WEBHDFS_PORT

SCHEMES = {"webhdfs": "http", "swebhdfs": "https"}
USER = "HADOOP_USER_NAME"
_LIMIT_S = 10.0
_MOST_BYTES = 1 << 16


class NameNodes:
    """`allowed`: name nodes as HOST or HOST:PORT, for every port."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(each.lower() for each in allowed)

    async def is_there(self, uri: str, env: Sequence[Mapping[str, Any]]) -> bool:
        """Whether there is a file at `uri`, or any file in a folder of this name. `env`: variables of the run. Raises StorageError."""
        parts = urlsplit(uri)
        host = self._checked(parts)
        user = parts.username or next((str(each["value"]) for each in env if each.get("name") == USER and each.get("value")), "")
        place = f"{SCHEMES[parts.scheme.lower()]}://{host}/webhdfs/v1{quote(parts.path.rstrip('/') or '/')}"
        status = await _ask(host, f"{place}?{_query('GETFILESTATUS', user)}", user)
        if status is None or status.get("FileStatus", {}).get("type") == "FILE":
            return status is not None
        summary = await _ask(host, f"{place}?{_query('GETCONTENTSUMMARY', user)}", user)
        return summary is not None and int(summary.get("ContentSummary", {}).get("fileCount", 0)) > 0

    def _checked(self, parts: SplitResult) -> str:
        try:
            name, port = (parts.hostname or "").lower(), parts.port or WEBHDFS_PORT
        except ValueError as error:
            raise StorageError(f"its address is no name node: {error}", "write webhdfs://NAMENODE:9870/PATH") from None
        host = f"{name}:{port}"
        if not name or parts.password or not {name, host} & self._allowed:
            raise StorageError(f"the hub may not ask {host}: its administrators allow name nodes by --name-node", "ask them")
        return host


def _query(operation: str, user: str) -> str:
    return urlencode({"op": operation, **({"user.name": user} if user else {})})


async def _ask(host: str, url: str, user: str) -> dict[str, Any] | None:
    """The answer of a name node; None: there is no such path. Raises StorageError."""
    import aiohttp

    try:
        timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(_whole(url), allow_redirects=False) as answer:
            status, body = answer.status, await answer.content.read(_MOST_BYTES)
    except (TimeoutError, aiohttp.ClientError) as error:
        raise StorageError(f"{host} cannot be reached: {type(error).__name__}", "see whether the name node is up") from None
    if status == 404:
        return None
    if status in (401, 403):
        who = f"the user {user}" if user else "a request without a user"
        raise StorageError(f"{host} refuses {who} ({status})", f"set {USER} in template.spec.env to a user with rights there")
    try:
        found = json.loads(body) if status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StorageError(f"{host} answers {status}, and not as a name node does", "see whether it is one")
    return found


def _whole(url: str) -> Any:
    """The URL as it is: its path is quoted already."""
    import yarl

    return yarl.URL(url, encoded=True)
