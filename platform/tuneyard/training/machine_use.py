"""What a machine does while it trains, once a second: network, disks, processors, memory and GPUs.

Counters are those of Linux (`/proc`, and InfiniBand's in `/sys/class/infiniband`, whose traffic `/proc/net/dev` does not see) and of NVML.
Network counters are of this container, all others of the whole machine. What a system does not count is left out.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROC = Path("/proc")
INFINIBAND = Path("/sys/class/infiniband")
EVERY_S = 1.0
TOLD_SAMPLES = 10
"""Samples whose means are told together while the task trains."""
_LEAST_S = 1e-3
_SECTOR_BYTES = 512
"""Unit of /proc/diskstats, whatever the disk's own sectors are."""
_WORD_BYTES = 4
"""Unit of InfiniBand's counters of data."""
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md")
"""Devices on top of others, whose sectors would count twice, or of memory."""


@dataclass
class Figure:
    """Mean and maximum of a quantity over its samples."""

    total: float = 0.0
    samples: int = 0
    most: float = 0.0

    def add(self, value: float) -> None:
        self.total += value
        self.samples += 1
        self.most = max(self.most, value)

    def to_dict(self) -> dict[str, float]:
        return {"mean": self.total / self.samples, "most": self.most}


@dataclass
class MachineUse:
    """Samples from `start` to `stop`, in a thread of its own. `gpus`: whether to ask NVML for those that this container sees."""

    ranks: int = 1
    """Ranks of this machine, of which this process is one."""
    gpus: bool = False
    tell: Callable[[Mapping[str, float]], None] | None = None
    """Called in the thread of the samples with their means, every `TOLD_SAMPLES` samples and with the last ones."""
    _figures: dict[str, Figure] = field(default_factory=dict)
    _untold: dict[str, Figure] = field(default_factory=dict)
    _seconds: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tuneyard-machine-use", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * EVERY_S)

    def to_dict(self) -> dict[str, Any]:
        """By quantity {mean, most}: rates in 1e9 bytes a second, memory in 1e9 bytes, shares from 0 to 1. Empty if nothing was sampled."""
        found = {name: each.to_dict() for name, each in sorted(self._figures.items()) if each.samples}
        about = {"host": socket.gethostname(), "ranks": self.ranks, "seconds": self._seconds}
        return {**about, **found} if found else {}

    def _run(self) -> None:
        with suppress(Exception), _devices(on=self.gpus) as devices:  # a figure for people: it never ends a run
            before, at = _counters(), time.monotonic()
            ended = False
            while not ended:
                ended = self._ended.wait(EVERY_S)
                now, seconds, at = _counters(), time.monotonic() - at, time.monotonic()
                if not ended or not self._seconds:  # a run that ends before the first sample has one all the same
                    self._add(_rates(before, now, max(seconds, _LEAST_S)) | _levels() | devices())
                    self._seconds += seconds
                if ended or max((each.samples for each in self._untold.values()), default=0) >= TOLD_SAMPLES:
                    self._tell()
                before = now

    def _add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._figures.setdefault(name, Figure()).add(value)
            self._untold.setdefault(name, Figure()).add(value)

    def _tell(self) -> None:
        means = {name: each.total / each.samples for name, each in sorted(self._untold.items())}
        self._untold = {}
        if means and self.tell is not None:
            self.tell(means)


def _rates(before: Mapping[str, float], now: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Rates of the bytes that have grown, and the shares of processor time that were not idle and that this process took. A counter that
    was reset is left out.
    """
    grown = {name: now[name] - before[name] for name in now.keys() & before.keys() if now[name] >= before[name]}
    rates = {f"{name}_gb_per_s": value / seconds / 1e9 for name, value in grown.items() if not name.startswith("cpu_")}
    rates["cpu_share_of_rank"] = min(1.0, grown.get("cpu_rank", 0.0) / seconds / (os.cpu_count() or 1))
    if grown.get("cpu_all", 0.0) > 0:
        rates["cpu_share"] = min(1.0, grown.get("cpu_busy", 0.0) / grown["cpu_all"])
    return rates


def _counters() -> dict[str, float]:
    found = {"cpu_rank": time.process_time()}
    for read in (_network, _disks, _processors):
        with suppress(OSError, ValueError, IndexError):
            found |= read()
    return found


def _network() -> dict[str, float]:
    """Bytes sent and received by all interfaces but the loopback, and by InfiniBand's ports."""
    sent = received = 0.0
    for line in (PROC / "net" / "dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            received, sent = received + float(fields[0]), sent + float(fields[8])
    for counters in INFINIBAND.glob("*/ports/*/counters"):
        with suppress(OSError, ValueError):
            received += _WORD_BYTES * float((counters / "port_rcv_data").read_text())
            sent += _WORD_BYTES * float((counters / "port_xmit_data").read_text())
    return {"network_sent": sent, "network_received": received}


def _disks() -> dict[str, float]:
    """Bytes read and written by all disks: of a disk with partitions the disk alone."""
    read = written = 0.0
    whole = {path.name for path in Path("/sys/block").glob("*")} if Path("/sys/block").is_dir() else None
    for line in (PROC / "diskstats").read_text().splitlines():
        fields = line.split()
        if not fields[2].startswith(_NO_DISKS) and (whole is None or fields[2] in whole):
            read, written = read + _SECTOR_BYTES * float(fields[5]), written + _SECTOR_BYTES * float(fields[9])
    return {"disk_read": read, "disk_written": written}


def _processors() -> dict[str, float]:
    """Ticks of all processors, and those that were not idle. Waiting for a disk is idle; time stolen by other machines is not counted."""
    user, nice, system, idle, wait, irq, soft = (float(each) for each in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:8])
    busy = user + nice + system + irq + soft
    return {"cpu_busy": busy, "cpu_all": busy + idle + wait}


def _levels() -> dict[str, float]:
    with suppress(OSError, ValueError, KeyError):
        lines = (line.split() for line in (PROC / "meminfo").read_text().splitlines())
        kilobytes = {line[0]: float(line[1]) for line in lines}
        return {"host_memory_gb": (kilobytes["MemTotal:"] - kilobytes["MemAvailable:"]) * 1024 / 1e9}
    return {}


@contextmanager
def _devices(*, on: bool) -> Iterator[Callable[[], dict[str, float]]]:
    """A function that reads the GPUs of this container by NVML. Without NVML, there is nothing to read."""
    try:
        if not on:
            raise ImportError
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, or one that fails
        yield dict
        return
    try:
        handles = list(_visible(pynvml))
        yield lambda: _read_gpus(pynvml, handles)
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()


def _read_gpus(nvml: Any, handles: list[Any]) -> dict[str, float]:
    """Means over GPUs of utilization and PCIe rates, and the fullest memory. What NVML does not tell is left out."""
    count = len(handles)
    if not count:
        return {}
    found: dict[str, float] = {}
    with suppress(Exception):
        found["gpu_utilization"] = sum(nvml.nvmlDeviceGetUtilizationRates(each).gpu for each in handles) / count / 100
    with suppress(Exception):
        memory = [nvml.nvmlDeviceGetMemoryInfo(each) for each in handles]
        found["gpu_memory_gb"] = max(each.used for each in memory) / 1e9
        found["gpu_memory_share"] = max(each.used / each.total for each in memory)
    for name, counter in (("sent", nvml.NVML_PCIE_UTIL_TX_BYTES), ("received", nvml.NVML_PCIE_UTIL_RX_BYTES)):
        with suppress(Exception):  # kilobytes a second, over the last 20 ms
            rate = sum(nvml.nvmlDeviceGetPcieThroughput(each, counter) for each in handles) / count
            found[f"pcie_{name}_gb_per_s"] = rate * 1024 / 1e9
    return found


def _visible(nvml: Any) -> Iterator[Any]:
    """Handles of the GPUs that torch sees here."""
    import torch

    for index in range(torch.cuda.device_count()):
        yield nvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(index))
