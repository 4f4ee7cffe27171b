"""The answer to a watch: lines of JSON, each an event of type ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuneyard.kubernetes.errors import error_of
from tuneyard.kubernetes.objects import Object

LONGEST_LINE = 2**22
"""Bytes of one event: etcd takes objects of 1.5 MiB."""
_SHOWN = 100


class Lines:
    """Whole lines out of the chunks of a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk. Raises ValueError for a line longer than any event."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError(f"an event is longer than {LONGEST_LINE} bytes")
        return lines


def event_of(found: Any) -> tuple[str, Object]:
    """Type and object of a decoded event. A BOOKMARK holds a resource version alone, from which a later watch may start.

    Raises ValueError for what is no event, and the ApiError that an ERROR event stands for: Expired (410) where the watch started from a
    version that is too old.
    """
    kind, item = (found.get("type"), found.get("object")) if isinstance(found, Mapping) else (None, None)
    if not isinstance(kind, str) or not isinstance(item, dict):
        raise ValueError(f"no event of a watch: {str(found)[:_SHOWN]}")
    if kind == "ERROR":
        code = item.get("code")
        raise error_of(code if isinstance(code, int) else 500, json.dumps(item).encode())
    return kind, item
