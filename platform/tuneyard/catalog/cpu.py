"""This machine as a SKU: its memory, and its measured peaks, kept in the user's cache folder.

A CPU's data sheet says little about the matmuls that torch reaches on it, so the peak is what it reaches. MFU on `cpu` is thus the
share of this machine's best matmul.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.gpus import Dtype, Gpu

_MEASURE_TIMEOUT_S = 300


def this_machine() -> Gpu:
    """The machine that this process runs on. Measures it first if there is no cached measurement of the same CPU, cores and torch.

    Raises BadInput if it cannot be measured.
    """
    model, cores = cpu_model(), usable_cores()
    library = _matmul_library()
    key = hashlib.sha256(f"{model}|{cores}|{library}".encode()).hexdigest()[:16]
    file = cache_folder() / f"cpu-{key}.json"
    measured = _read(file)
    if measured is None:
        measured = {"cpu": model, "cores": cores, "library": library, **_measure(cores)}
        _write(file, measured)
    peaks: dict[Dtype, float] = measured["peak_flops"]
    return Gpu(
        sku="cpu",
        name=f"{model}, {cores} cores",
        memory_gb=machine_memory_gb(),
        peak_flops=peaks,
        memory_bandwidth_gb_s=measured["memory_bandwidth_gb_s"],
        link_gb_s=0.0,
        pcie_gb_s=0.0,
        compute_capability=None,
        source=f"measured on this machine with {library}, kept in {file}",
    )


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tuneyard`, by default `~/.cache/tuneyard`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuneyard"


def cpu_model() -> str:
    """The CPU's name as the kernel prints it."""
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


def _matmul_library() -> str:
    for package in ("torch", "numpy"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    raise BadInput("the peak of `cpu` cannot be measured: neither torch nor numpy is installed", "run `make setup`")


def _measure(cores: int) -> dict[str, Any]:
    """Runs `measure_cpu` in a process of its own: nothing here loads torch, and the threads of neither process disturb the other's."""
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [sys.executable, "-m", "tuneyard.catalog.measure_cpu", str(cores)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **threads}, capture_output=True, text=True, timeout=_MEASURE_TIMEOUT_S, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"measuring the peak of `cpu` took over {_MEASURE_TIMEOUT_S} s", "try again when the machine is less busy"
        ) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadInput(f"the peak of `cpu` cannot be measured: {last}", f"see what `{' '.join(command)}` prints") from error
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _read(file: Path) -> dict[str, Any] | None:
    """A cached measurement; None where there is none, or none that can be read: it is then made again."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    complete = isinstance(values, dict) and values.get("peak_flops") and "memory_bandwidth_gb_s" in values
    return values if complete else None


def _write(file: Path, values: dict[str, Any]) -> None:
    """Keeps a measurement, whole or not at all. A cache that cannot be written only costs the next process some seconds."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".tmp", delete=False, encoding="utf-8") as partial:
            json.dump(values, partial, indent=2)
        Path(partial.name).replace(file)
    except OSError:
        return
