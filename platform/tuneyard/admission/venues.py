"""Venues of a job: one machine, the members of a hub, or any of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The devices for a job: `devices` GPUs of one SKU, or cores on `cpu`. `memory_gb`: host memory of all its hosts; None: this machine's.
    `per_host`: GPUs of the host with most GPUs; None: there is one host."""

    sku: str
    devices: int
    memory_gb: float | None = None
    per_host: int | None = None
    price_per_device_hour: float = 0.0
    """In the currency of the Clusters; 0: unknown."""

    @property
    def has_gpus(self) -> bool:
        return self.sku != "cpu"


@dataclass(frozen=True)
class Hub:
    """The members of a hub. Any SKU that a task allows counts, whether members have it now or not: the scheduler looks at members."""


@dataclass(frozen=True)
class Anywhere:
    """Any machine or hub: the venue for checking a file without a place."""


Venue = Machine | Hub | Anywhere
