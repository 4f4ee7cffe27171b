"""What bounds the speed of a train task: rows, checkpoints, the host's optimizer, the network, the host, GPU memory, or compute. Pure.

The causes are asked in the order in which they hide each other: a step that waits for rows says nothing about the network. The argument on
GPU memory is Uber's (*Open Source and In-House: How Uber Optimizes LLM Training*, 2024): where neither network nor host is busy, and memory
is full, a larger micro-batch would raise MFU, and memory is what forbids it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.tracking.bottleneck import stall_of

Cause = Literal["data", "checkpoints", "host optimizer", "network", "host", "memory", "compute"]

_WAITS = 0.1
"""Share of the time of steps from which on a wait is what bounds them."""
_OPTIMIZER = 0.25
_NETWORK = 0.5
"""Share of the planned rate of a machine's network from which on a mean rate counts as full: a step sends in bursts."""
_IDLE = 0.6
"""GPUs that were busy for a smaller share wait for something."""
_FULL = 0.85
_BUSY_PROCESSORS = 0.75
_OWN = 0.7
"""Share of the busy processors that ranks have where nothing else runs."""
_LEAST_S = 10
"""Shorter runs load kernels and fill caches for most of their time."""


@dataclass(frozen=True)
class Bound:
    cause: Cause
    sentence: str


def bound_of(
    split: Mapping[str, float],
    machines: Sequence[Mapping[str, Any]],
    *,
    offloads: bool = False,
    network_gb_s: float | None = None,
    mfu: float = 0.0,
) -> Bound | None:
    """`split`: seconds by phase; `machines`: `details.machines` of a report; `offloads`: whether the optimizer steps on the host;
    `network_gb_s`: the planned rate of a machine to others, None on one machine. None: less than ten seconds were sampled.
    """
    if max((machine.get("seconds", 0) for machine in machines), default=0) < _LEAST_S:
        return None
    seconds = {name.removesuffix("_s"): value for name, value in split.items()}
    whole = sum(seconds.values())
    stall, saving = stall_of(split), seconds.get("checkpoint", 0.0) / whole if whole else 0.0
    stepping = whole - seconds.get("checkpoint", 0.0) - seconds.get("evaluation", 0.0)
    optimizer = seconds.get("optimizer", 0.0) / stepping if stepping > 0 else 0.0
    if stall >= _WAITS:
        return Bound("data", f"bound by data: steps waited for rows {stall:.0%} of the time")
    if saving >= _WAITS:
        return Bound(
            "checkpoints", f"bound by checkpoints: training stood still for them {saving:.0%} of the time; raise checkpoint.everySteps"
        )
    if offloads and optimizer >= _OPTIMIZER:
        return Bound(
            "host optimizer", f"bound by the host: its optimizer took {optimizer:.0%} of the steps; a larger batch.global steps less often"
        )
    sent = max(_mean(machines, "network_sent_gb_per_s"), _mean(machines, "network_received_gb_per_s"))
    if network_gb_s and sent >= _NETWORK * network_gb_s:
        return Bound(
            "network", f"bound by the network: a machine sent {sent:.3g} GB/s on average, and {network_gb_s:.3g} are planned for it"
        )
    return _of_devices(machines, sent, mfu)


def _of_devices(machines: Sequence[Mapping[str, Any]], sent: float, mfu: float) -> Bound:
    if not any("gpu_utilization" in machine for machine in machines):
        busy = _mean(machines, "cpu_share")
        own = sum(machine.get("ranks", 1) * _mean([machine], "cpu_share_of_rank") for machine in machines) / len(machines)
        if busy >= _BUSY_PROCESSORS and own < _OWN * busy:
            return Bound(
                "host", f"bound by other work on the machine: processors were busy {busy:.0%} of the time, with the ranks only {own:.0%}"
            )
        if busy >= _BUSY_PROCESSORS:
            return Bound("compute", f"bound by compute: processors were busy {busy:.0%} of the time, at an MFU of {mfu:.0%}")
        return Bound(
            "host", f"processors were busy {busy:.0%} of the time: ranks waited for each other, or have fewer threads than processors"
        )
    busy, full = _mean(machines, "gpu_utilization"), max(_most(machine, "gpu_memory_share") for machine in machines)
    network = f", the network sent {sent:.2g} GB/s" if len(machines) > 1 else ""
    if busy < _IDLE:
        return Bound(
            "host", f"bound by the host: GPUs were busy {busy:.0%} of the time{network}; larger micro-batches launch fewer kernels"
        )
    if full >= _FULL:
        return Bound(
            "memory",
            f"bound by GPU memory, {full:.0%} full: GPUs were busy {busy:.0%} of the time at an MFU of {mfu:.0%}{network}. Larger "
            "micro-batches raise MFU; offloading, flash attention or recomputation make room for them",
        )
    return Bound(
        "compute", f"bound by compute: GPUs were busy {busy:.0%} of the time at an MFU of {mfu:.0%}, their memory {full:.0%} full{network}"
    )


def _mean(machines: Sequence[Mapping[str, Any]], name: str) -> float:
    """The mean over machines that have the figure."""
    values = [float(machine[name]["mean"]) for machine in machines if name in machine]
    return sum(values) / len(values) if values else 0.0


def _most(machine: Mapping[str, Any], name: str) -> float:
    return float(machine[name]["most"]) if name in machine else 0.0
