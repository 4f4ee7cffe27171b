"""Checks the network between the ranks before the model is loaded: an all-reduce over all ranks must end, be correct, and be fast enough.

It runs in every rank, on the process group that training will use, and so on its interface and transport.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from tuneyard.api import Blame, FailureKind, JobFailed
from tuneyard.runtime.nodes.pod import this_pod

_MB_ON_GPU = 256
_MB_ON_CPU = 4
_ROUNDS = 5
_LIMIT_S = 120.0
"""Longest time of one all-reduce. The first one also sets up connections."""
_BUSY_S = 0.2
"""Seconds for which the wait does not sleep: an all-reduce takes milliseconds, and a sleep would distort its measurement."""
_POLL_S = 0.002
LEAST_SHARE = 0.5
"""Least share of the promised bandwidth: below it, the network is broken, not just busy."""


@dataclass(frozen=True)
class Measured:
    """`gb_per_s`: bus bandwidth as in nccl-tests (doc/PERFORMANCE.md): bytes x 2 (n - 1) / n / seconds. None with one rank."""

    seconds: float
    gb_per_s: float | None


def try_all_reduce(*, on_gpu: bool, promised_gb_per_s: float | None) -> Measured:
    """Sum a buffer over all ranks several times. A collective call, with the same result on every rank.

    Raises JobFailed (NETWORK) if a sum is wrong, does not end in time, or reaches less than half of the promised bandwidth.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return Measured(0.0, None)
    began = time.perf_counter()
    size, rank = dist.get_world_size(), dist.get_rank()
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    mb = _MB_ON_GPU if on_gpu else _MB_ON_CPU
    buffer = torch.empty(mb * 2**20 // 4, dtype=torch.float32, device=device)
    took_s = []
    for _ in range(_ROUNDS + 1):
        buffer.fill_(rank + 1)
        started = time.perf_counter()
        _wait(dist.all_reduce(buffer, async_op=True), on_gpu)
        took_s.append(time.perf_counter() - started)
        if not bool((buffer == size * (size + 1) / 2).all()):
            raise _failure(f"an all-reduce over {size} ranks came out wrong on rank {rank}")
    # The first round sets up connections, and does not count. The slowest rank decides, so that all ranks come to the same verdict.
    slowest = torch.tensor([min(took_s[1:])], device=device)
    _wait(dist.all_reduce(slowest, op=dist.ReduceOp.MAX, async_op=True), on_gpu)
    gb_per_s = bus_bandwidth(buffer.nbytes, size, float(slowest.item()))
    if promised_gb_per_s is not None and gb_per_s < LEAST_SHARE * promised_gb_per_s:
        raise _failure(f"an all-reduce over {size} ranks runs at {gb_per_s:.2f} GB/s, but the cluster promises {promised_gb_per_s:g}")
    return Measured(time.perf_counter() - began, gb_per_s)


def bus_bandwidth(size_bytes: int, ranks: int, seconds: float) -> float:
    """GB/s that an all-reduce moves over each rank's link (nccl-tests, doc/PERFORMANCE.md, "busbw")."""
    return size_bytes * 2 * (ranks - 1) / ranks / seconds / 1e9


def _wait(work: Any, on_gpu: bool) -> None:
    import torch

    began = time.perf_counter()
    while not work.is_completed():
        waited_s = time.perf_counter() - began
        if waited_s > _LIMIT_S:
            raise _failure(f"an all-reduce over all ranks did not end within {_LIMIT_S:g} s")
        time.sleep(0 if waited_s < _BUSY_S else _POLL_S)
    work.wait()
    if on_gpu:
        torch.cuda.synchronize()


def _failure(cause: str) -> JobFailed:
    interface = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    where = f" (seen on {this_pod()}, interface {interface or 'chosen by the library'})"
    return JobFailed(
        f"preflight: {cause}{where}",
        "check the network between the nodes, and the interface that the Cluster object names",
        kind=FailureKind.NETWORK,
        blame=Blame(rank=int(os.environ.get("RANK", "0"))),
    )
