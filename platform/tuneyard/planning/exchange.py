"""Time and memory of averaging gradients across hosts where training does it itself: `shardWithin: host`, and a quantised all-reduce.

Sizes on the wire are those of `parallel.compressed`: in 8 bits, an element takes one byte, plus 4 bytes of scale per block of 256.
"""

from __future__ import annotations

from tuneyard.planning.links import GIGA, Links
from tuneyard.planning.setup import BYTES, Setup

QUANTISED_WIDTH = 1 + 4 / 256
"""Bytes of a gradient element on the wire."""
_CODING_TRAFFIC = 100.0
"""Bytes of memory traffic per element of a chunk for coding: 5 fp32 passes of `encode` over the rank's own values and 3 to add the last
step's error, the same again over its share of the mean, and 2 of `decode`. Counted, not fitted.
"""


def averages_itself(setup: Setup) -> bool:
    """Whether training averages gradients itself, instead of the engine."""
    layout = setup.layout
    return layout.data_parallel > setup.shards or (layout.quantised_all_reduce != "none" and layout.zero == 0 and layout.data_parallel > 1)


def hosts(setup: Setup) -> int:
    """Replicas that exchange gradients over the network; 1 where all ranks are on one host."""
    return max(1, -(-setup.layout.data_parallel // setup.ranks_per_host))


def exchange_s(setup: Setup, links: Links, trained: float) -> float:
    """Seconds to average `trained` gradients of a replica, without overlap.

    Hybrid: ranks of equal index in their hosts all-reduce their shards. Replicas (ZeRO 0): reduce-scatter inside a host, exchange between
    hosts, all-gather inside a host.
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
    ranks = min(setup.layout.workers, setup.ranks_per_host) if setup.gpu.is_cpu else 1  # ranks that share a machine's memory
    return shard * _CODING_TRAFFIC * ranks / (setup.gpu.memory_bandwidth_gb_s * GIGA)


def exchange_bytes(setup: Setup, trained: float) -> float:
    """Bytes of a rank for the exchange, beside the gradients: copies in flight, and with 8 bits the fp32 errors of both stages."""
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
