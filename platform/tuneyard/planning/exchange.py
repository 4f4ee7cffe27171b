"""What averaging gradients across hosts takes where training does it itself: `shardWithin: host`, and a quantised all-reduce.

Sizes on the wire are those of `parallel.compressed`: in 8 bits, an element is a byte, with 4 bytes of scale per block of 256.
"""

from __future__ import annotations

from tuneyard.planning.links import GIGA, Links
from tuneyard.planning.setup import BYTES, Setup

QUANTISED_WIDTH = 1 + 4 / 256
"""Bytes of a gradient on the wire."""
_CODING_TRAFFIC = 100.0
"""Bytes of memory per element of a chunk that coding reads and writes: 5 fp32 passes of `encode` over the rank's own values and 3 of what
adds the error of the last step, and as many over its share of the mean; 2 of `decode`. Counted, not fitted."""


def averages_itself(setup: Setup) -> bool:
    """Whether training averages gradients itself."""
    layout = setup.layout
    return layout.data_parallel > setup.shards or (layout.quantised_all_reduce != "none" and layout.zero == 0 and layout.data_parallel > 1)


def hosts(setup: Setup) -> int:
    """Replicas whose gradients meet on the network; 1 where all ranks are on one host."""
    return max(1, -(-setup.layout.data_parallel // setup.ranks_per_host))


def exchange_s(setup: Setup, links: Links, trained: float) -> float:
    """Seconds for `trained` gradients of a replica, nothing hidden.

    Hybrid: ranks of equal place in their hosts all-reduce their shards. Replicas (ZeRO 0): scattered inside a host, exchanged, gathered.
    """
    layout = setup.layout
    quantised = layout.quantised_all_reduce != "none"
    plain = 4 if layout.zero == 0 else BYTES[layout.precision]
    replicas = hosts(setup)
    local = min(layout.data_parallel, setup.ranks_per_host) if replicas > 1 else 1
    shard = trained / (setup.shards if layout.zero == 3 else local)
    inside = 2 * links.ring_s(trained * plain, local) if layout.zero == 0 else 0.0
    size = shard * (QUANTISED_WIDTH if quantised else plain)
    meeting = replicas if replicas > 1 else layout.data_parallel
    across = 2 * links.ring_s(size, meeting, stride=setup.ranks_per_host if replicas > 1 else 1)
    return inside + across + (_coding_s(setup, shard) if quantised else 0.0)


def _coding_s(setup: Setup, shard: float) -> float:
    ranks = min(setup.layout.workers, setup.ranks_per_host) if setup.gpu.is_cpu else 1  # which share a machine's memory
    return shard * _CODING_TRAFFIC * ranks / (setup.gpu.memory_bandwidth_gb_s * GIGA)


def exchange_bytes(setup: Setup, trained: float) -> float:
    """Bytes that a rank holds for it, beside the gradients: copies on their way, and in 8 bits the errors of both stages in fp32."""
    layout = setup.layout
    if not averages_itself(setup):
        return 0.0
    shard = trained / (setup.shards if layout.zero == 3 else 1)
    copies = shard * BYTES[layout.precision] if layout.zero == 3 else 0.0
    if layout.quantised_all_reduce == "none":
        return copies
    replicas = hosts(setup)
    local = min(layout.data_parallel, setup.ranks_per_host) if layout.zero == 0 and replicas > 1 else 1
    meeting = replicas if replicas > 1 else layout.data_parallel
    return copies + 4 * shard / local * (1 + 1 / meeting)
