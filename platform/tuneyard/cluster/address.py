"""The address of a hub, and its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """A hub, as errors name it."""

    server: str
    namespace: str
    """The namespace of objects whose manifest names none."""
    source: str
    """The kubeconfig's path, or the pod's service account."""
    flags: str = ""
    """The flags by which kubectl reaches the same hub."""

    @property
    def hub(self) -> str:
        return f"the hub at {self.server}"
