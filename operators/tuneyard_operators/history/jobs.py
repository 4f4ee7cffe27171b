"""What the writers of history and of traces see of the hub's JobSpecs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import JobStatus
from tuneyard_operators.kube import Key


@dataclass(frozen=True)
class Jobs:
    """The hub's JobSpecs: the cache, the status of one, and whether all are listed."""

    items: Mapping[Key, Mapping[str, Any]]
    status: Callable[[Key], JobStatus]
    synced: asyncio.Event
