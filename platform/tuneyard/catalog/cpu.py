"""This machine as a SKU: its memory, and its measured peaks, which are cached in the user's cache folder.

A CPU's data sheet says little about the speed of torch's matmuls, so the peak is measured. MFU on `cpu` is thus the share of this machine's
best matmul.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.gpu_entries import cache_folder, write_whole
from tuneyard.catalog.gpu_facts import Dtype, Gpu
from tuneyard.catalog.measurement_process import run_measurement

_BUSY_SHARE = 0.5
"""Load per core during the last minute, below which the machine counts as quiet."""


def this_machine() -> Gpu:
    """The machine that this process runs on, or one whose measurement it has adopted. Without a cached measurement of the same CPU, cores
    and torch, it is measured first. A measurement from a busy machine may be too low: its basis is "doubtful", and it is repeated
    once the machine is quiet.

    Raises BadInput if it cannot be measured.
    """
    file = cache_folder() / f"{machine_key()}.json"
    measured = _read(file)
    if measured is None or (not measured.get("quiet") and _is_quiet()):
        measured = _better(measure(), measured)
        adopt(measured)
    peaks: dict[Dtype, float] = measured["peak_flops"]
    return Gpu(
        sku="cpu",
        name=f"{measured['cpu']}, {measured['cores']} cores",
        memory_gb=machine_memory_gb(),
        peak_flops=peaks,
        memory_bandwidth_gb_s=measured["memory_bandwidth_gb_s"],
        link_gb_s=0.0,
        pcie_gb_s=0.0,
        vendor="cpu",
        architecture="",
        source=f"measured with {measured['library']}, kept in {file}",
        basis="measured" if measured.get("quiet") else "doubtful",
    )


def machine_key() -> str:
    """Identifies machines with equal peaks: CPU, usable cores, and the matmul library."""
    return f"cpu-{hashlib.sha256(f'{cpu_model()}|{usable_cores()}|{_matmul_library()}'.encode()).hexdigest()[:16]}"


def known() -> dict[str, Any] | None:
    """The cached measurement, if there is one."""
    return _read(cache_folder() / f"{machine_key()}.json")


def measure() -> dict[str, Any]:
    """A new measurement of this machine, as a JSON object. Raises BadInput."""
    cores, quiet = usable_cores(), _is_quiet()
    return {"cpu": cpu_model(), "cores": cores, "library": _matmul_library(), "quiet": quiet, **_measure(cores)}


def _is_quiet() -> bool:
    """Whether other processes have used little of this machine during the last minute."""
    return os.getloadavg()[0] < _BUSY_SHARE * (os.cpu_count() or 1)


def _better(new: dict[str, Any], old: Mapping[str, Any] | None) -> dict[str, Any]:
    """The maximum of each peak: other work can only make a measurement too low."""
    if old is None:
        return new
    peaks = {dtype: max(flops, old["peak_flops"].get(dtype, 0.0)) for dtype, flops in new["peak_flops"].items()}
    bandwidth = max(new["memory_bandwidth_gb_s"], old["memory_bandwidth_gb_s"])
    return {**new, "peak_flops": peaks, "memory_bandwidth_gb_s": bandwidth}


def adopt(measured: Mapping[str, Any]) -> bool:
    """Cache a measurement, of this machine or of one that it represents: the driver of a cluster plans for its worker nodes. False for an
    invalid measurement.
    """
    file = cache_folder() / f"{machine_key()}.json"
    complete = _is_complete(measured)
    if complete:
        write_whole(file, measured)
    return complete


def cpu_model() -> str:
    """The CPU's name from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may use: its affinity, within its cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, math.ceil(int(quota[0]) / int(quota[1]))))
    return cores


def machine_memory_gb() -> float:
    """Memory that processes here may use together, in 1e9 bytes: the machine's, within the cgroup's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _first_line("/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) / 1e9 if limit.isdigit() else total / 1e9


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _matmul_library() -> str:
    for package in ("torch", "numpy"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    raise BadInput("the peak of `cpu` cannot be measured: neither torch nor numpy is installed", "run `make setup`")


def _measure(cores: int) -> dict[str, Any]:
    """Measure all usable cores, in a process without this process's threads."""
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return run_measurement(["cpu", str(cores)], what="`cpu`", environment=threads)


def _read(file: Path) -> dict[str, Any] | None:
    """A cached measurement; None if it is absent or unreadable, and has to be repeated."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if _is_complete(values) else None


def _is_complete(values: object) -> bool:
    needed = {"cpu", "cores", "library", "peak_flops", "memory_bandwidth_gb_s"}
    return (
        isinstance(values, Mapping) and needed <= set(values) and isinstance(values["peak_flops"], Mapping) and bool(values["peak_flops"])
    )
