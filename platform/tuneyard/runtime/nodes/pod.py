"""The pod of this process and its node, by their names in Kubernetes, and the notice that the pod must stop."""

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
    """The pod of this process, from TUNEYARD_POD and TUNEYARD_NODE, which the downward API sets (docs/design/060)."""
    return Pod(os.environ.get("TUNEYARD_POD") or socket.gethostname(), os.environ.get("TUNEYARD_NODE", ""))


@dataclass(frozen=True)
class PodNotice:
    """The notice to a pod that it must stop, and the mark that delays its end until its work has stopped.

    The pod's preStop hook (rendered by the hub) writes `notice` into the scratch volume, and delays SIGTERM while `busy` exists.
    """

    scratch: Path

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> PodNotice | None:
        """The notice of this pod; None outside of an attempt's pod."""
        return cls(Path(environment["TUNEYARD_SCRATCH"])) if environment.get("TUNEYARD_SCRATCH") else None

    @property
    def given(self) -> bool:
        return (self.scratch / "notice").exists()

    def begin_work(self) -> None:
        with suppress(OSError):  # the preflight reports a disk that cannot be written to
            (self.scratch / "busy").touch()

    def end_work(self) -> None:
        with suppress(OSError):
            (self.scratch / "busy").unlink(missing_ok=True)
