"""The sections that train nothing: facts with the paths of attention, DeepSpeed's compiled code, measured peaks, and tests/gpu."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context

import torch
from benchmarks.gpu.attention import paths
from benchmarks.gpu.results import first_line, tell

from tuneyard.catalog import gpu, local_devices, local_sku
from tuneyard.catalog.gpu_entries import GpuEntry
from tuneyard.catalog.local import unlisted_gpu
from tuneyard.catalog.measured import measure_and_keep, new_measurement

_PACKAGES = ("torch", "triton", "transformers", "peft", "deepspeed", "bitsandbytes", "liger-kernel")
_DRIVER = ("nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader")
_OPS = (("CPUAdamBuilder",), ("PinMemoryBuilder", "AsyncIOBuilder"))
"""The library of async I/O is loaded beside that of pinned memory, which it uses."""
_REPEATS = 5


def facts() -> None:
    """The device, its name in the catalog, versions, and the time of each path of attention. A card that the catalog lacks is measured."""
    device = local_devices()[0]
    tell(
        "facts",
        sku=device.sku,
        card=device.name,
        listed=device.listed,
        memory_gb=device.memory_gb,
        driver=_answer(_DRIVER),
        cores=os.cpu_count(),
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
    )
    if unlisted_gpu(device.sku) is not None:
        measure_and_keep(device.sku)
    for path in paths():
        try:
            ms = _time_ms(path.forward)
            tell("facts", attention=path.name, ms=ms, tflops=path.flops / ms / 1e9)
        except Exception as error:  # noqa: BLE001 - the other paths are timed all the same
            tell("facts", attention=path.name, error=first_line(error))


def compile_ops() -> None:
    """DeepSpeed's libraries for offload, side by side, into the cache where training looks for them. Training beside it goes first."""
    os.nice(10)
    os.environ.setdefault("MAX_JOBS", str(max(1, 5 * (os.cpu_count() or 1) // 8)))
    with ProcessPoolExecutor(len(_OPS), mp_context=get_context("spawn")) as pool:
        for _ in pool.map(_compile, _OPS):
            pass


def _compile(names: tuple[str, ...]) -> None:
    # DeepSpeed's builder of async I/O on CUDA uses this module without importing it.
    from deepspeed.ops import op_builder

    from tuneyard.training.compiled_ops import load_op

    for name in names:
        began = time.monotonic()
        try:
            load_op(getattr(op_builder, name)(), lambda: None)
            tell("compile", op=name, seconds=time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the others are compiled all the same
            tell("compile", op=name, error=first_line(error))


def measure_peaks() -> None:
    """Measured peaks of this card beside the peaks in the catalog."""
    sku = local_sku()
    measured, listed = new_measurement("cpu" if sku == "cpu" else "measured"), gpu(sku)
    if sku == "cpu":
        peaks, bandwidth = measured["peak_flops"], measured["memory_bandwidth_gb_s"]
    else:
        found = GpuEntry.model_validate(measured).gpu("")
        peaks, bandwidth = found.peak_flops, found.memory_bandwidth_gb_s
    for dtype, flops in peaks.items():
        tell("measure", peak=f"{dtype}, TFLOP/s", measured=flops / 1e12, listed=listed.peak_flops.get(dtype, 0.0) / 1e12)
    tell("measure", peak="memory, GB/s", measured=bandwidth, listed=listed.memory_bandwidth_gb_s)
    if sku != "cpu":
        tell("measure", peak="host link, GB/s", measured=found.pcie_gb_s, listed=listed.pcie_gb_s)


def run_tests() -> None:
    """The tests of tests/gpu, a line for each as it ends."""
    files = ("tests/gpu/test_gpu_training.py", "tests/gpu/test_gpu_measured.py")
    command = [sys.executable, "-m", "pytest", *files, "-v", "-p", "no:cacheprovider", "--tb=short"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if found := re.match(r"tests/gpu/\S+::(.+) (PASSED|FAILED|ERROR|SKIPPED)\b", line):
                tell("tests", test=found[1], outcome=found[2].lower())


RUN: dict[str, Callable[[], None]] = {"facts": facts, "compile": compile_ops, "measure": measure_peaks, "tests": run_tests}


def _time_ms(forward: Callable[[], torch.Tensor]) -> float:
    """Milliseconds of a forward and backward pass."""

    def run() -> None:
        forward().sum().backward()

    run()
    _synchronize()
    began = time.perf_counter()
    for _ in range(_REPEATS):
        run()
    _synchronize()
    return (time.perf_counter() - began) / _REPEATS * 1e3


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _answer(command: tuple[str, ...]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
