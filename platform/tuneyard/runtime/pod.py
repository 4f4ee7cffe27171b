"""Which pod this process runs in, and on which node: as people and Kubernetes call them, not as Ray does."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Pod:
    """`node` is empty outside Kubernetes, where `name` is the machine's own."""

    name: str
    node: str

    def __str__(self) -> str:
        return f"pod {self.name} on node {self.node}" if self.node else self.name


def this_pod() -> Pod:
    """From TUNEYARD_POD and TUNEYARD_NODE, which the downward API fills in (docs/design/060)."""
    return Pod(os.environ.get("TUNEYARD_POD") or socket.gethostname(), os.environ.get("TUNEYARD_NODE", ""))
