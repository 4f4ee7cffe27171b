"""Which pod this process runs in, and on which node: as people and Kubernetes call them, not as Ray does."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


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


@dataclass(frozen=True)
class PodNotice:
    """How a pod that must go is told so, and kept until its work has stopped.

    Its preStop hook (rendered by the hub) writes `notice` into the scratch volume, and holds SIGTERM back while `busy` is there.
    """

    scratch: Path

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> PodNotice | None:
        """None outside of an attempt's pod."""
        return cls(Path(environment["TUNEYARD_SCRATCH"])) if environment.get("TUNEYARD_SCRATCH") else None

    @property
    def given(self) -> bool:
        return (self.scratch / "notice").exists()

    def begin_work(self) -> None:
        with suppress(OSError):  # a disk that cannot be written to is the preflight's to explain
            (self.scratch / "busy").touch()

    def end_work(self) -> None:
        with suppress(OSError):
            (self.scratch / "busy").unlink(missing_ok=True)
