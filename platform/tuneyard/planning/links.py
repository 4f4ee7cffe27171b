"""Time of communication between devices: ring collectives with latency and bandwidth (Thakur et al. 2005, section 4).

Ranks are numbered with tensor-parallel ranks next to each other, then data-parallel ones, then pipeline stages, as in Megatron-LM. A group
that spans machines is one ring through all of them: each step is as slow as the slowest link, and groups that run at the same time share a
machine's network cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.catalog import Gpu
from tuneyard.planning.calibration import Efficiency
from tuneyard.planning.setup import Setup

GIGA = 1e9
_USUAL_GPUS = 8
"""GPUs of the machines whose networks the catalog has."""
_CARD_PER_GPU_GB_S = 100.0
"""Machines with at least this rate have a network card for each GPU."""


def usual_network_gb_s(gpu: Gpu, gpus_per_node: int) -> float:
    """The network of a machine with this many GPUs, in 1e9 bytes a second: machines with a card for each GPU have fewer cards if they have
    fewer GPUs."""
    if gpu.network_gb_s < _CARD_PER_GPU_GB_S:
        return gpu.network_gb_s
    return gpu.network_gb_s * min(1.0, gpus_per_node / _USUAL_GPUS)


@dataclass(frozen=True)
class Links:
    """The links of a setup: `inside_gb_s` of one GPU in one direction, `network_gb_s` of one machine."""

    inside_gb_s: float
    network_gb_s: float
    gpus_per_node: int
    inside_latency_s: float
    network_latency_s: float

    @classmethod
    def of(cls, setup: Setup, efficiency: Efficiency) -> Links:
        return cls.between(setup.gpu, efficiency, setup.layout.workers, setup.ranks_per_host, setup.network_gb_s)

    @classmethod
    def between(cls, gpu: Gpu, efficiency: Efficiency, workers: int, ranks_per_host: int, network_gb_s: float | None = None) -> Links:
        """The links of ranks on hosts of `ranks_per_host`."""
        # Ranks on `cpu` communicate through the machine's memory. Each byte crosses it about four times, as gloo copies into and out of
        # sockets.
        inside = gpu.memory_bandwidth_gb_s / (4 * min(workers, ranks_per_host)) if gpu.is_cpu else gpu.link_gb_s / 2
        network = network_gb_s if network_gb_s is not None else usual_network_gb_s(gpu, ranks_per_host)
        return cls(
            inside_gb_s=inside * efficiency.link,
            network_gb_s=network * efficiency.network,
            gpus_per_node=ranks_per_host,
            inside_latency_s=efficiency.link_latency_s,
            network_latency_s=efficiency.network_latency_s,
        )

    def ring_s(self, size: float, ranks: int, stride: int = 1) -> float:
        """Seconds of one all-gather or reduce-scatter of `size` bytes in total, over `ranks` that are `stride` apart.

        It has (n - 1) steps of size / n bytes; an all-reduce is two of these. A ring over several machines crosses each machine's network
        once, and shares it with the rings of the other ranks there. One rank takes no time.
        """
        if ranks == 1:
            return 0.0
        moved = size * (ranks - 1) / ranks / GIGA
        here = min(ranks, max(1, self.gpus_per_node // stride))
        if here == ranks:
            return moved / self.inside_gb_s + (ranks - 1) * self.inside_latency_s
        across = self.network_gb_s * here / self.gpus_per_node
        rate = min(self.inside_gb_s, across) if here > 1 else across
        return moved / rate + (ranks - 1) * self.network_latency_s

    def scatter_s(self, size: float, ranks: int) -> float:
        """Seconds of an all-to-all in which each rank sends `size` bytes in total, in equal parts to all ranks."""
        if ranks == 1:
            return 0.0
        here = min(ranks, self.gpus_per_node)
        inside = size * (here - 1) / ranks / GIGA / self.inside_gb_s + (here - 1) * self.inside_latency_s
        if here == ranks:
            return inside
        across = size * (ranks - here) / ranks / GIGA / (self.network_gb_s / self.gpus_per_node)
        return max(inside, across + (ranks - here) * self.network_latency_s)

    def send_s(self, size: float, stride: int) -> float:
        """Seconds that one rank takes to send `size` bytes to the rank `stride` further, while all other ranks of its machine send too."""
        if stride < self.gpus_per_node:
            return size / GIGA / self.inside_gb_s + self.inside_latency_s
        return size / GIGA / (self.network_gb_s / self.gpus_per_node) + self.network_latency_s
