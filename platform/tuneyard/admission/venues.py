"""Where a job may run: on one machine, or on whatever SKUs the members of a hub have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What a job may use: `devices` GPUs of one SKU, or, on `cpu`, cores. `memory_gb`: host memory of all its machines, where that is
    not this one's. `per_host`: GPUs of its fullest host, where it has several."""

    sku: str
    devices: int
    memory_gb: float | None = None
    per_host: int | None = None

    @property
    def has_gpus(self) -> bool:
        return self.sku != "cpu"


@dataclass(frozen=True)
class Hub:
    """Members of a hub: a task runs on any SKU that it allows, some day. What members have now is the scheduler's business."""


@dataclass(frozen=True)
class Anywhere:
    """Some machine or hub: what a file is checked against that names no place."""


Venue = Machine | Hub | Anywhere
ANYWHERE = Anywhere()
