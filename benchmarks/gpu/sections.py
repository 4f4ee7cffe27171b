"""The sections that train nothing: facts with the paths of attention, DeepSpeed's compiled code, measured peaks, and tests/gpu."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch
from benchmarks.gpu.attention import paths
from benchmarks.gpu.results import first_line, tell

from tuneyard.catalog import gpu, local_devices, local_sku
from tuneyard.catalog.gpu_entries import GpuEntry
from tuneyard.catalog.local import unlisted_gpu
from tuneyard.catalog.measured import measure_and_keep, new_measurement

_PACKAGES = ("torch", "triton", "transformers", "peft", "deepspeed", "bitsandbytes", "liger-kernel")
_DRIVER = ("nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader")
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
    """CPU Adam and async I/O of DeepSpeed, into the cache where training looks for them."""
    # DeepSpeed's builder of async I/O on CUDA uses this module without importing it.
    from deepspeed.ops.op_builder import AsyncIOBuilder, CPUAdamBuilder, PinMemoryBuilder

    from tuneyard.training.compiled_ops import load_op
    from tuneyard.training.zero_stack import deepspeed  # noqa: F401 - before the builders, which follow its accelerator

    for builder in (CPUAdamBuilder, PinMemoryBuilder, AsyncIOBuilder):
        began = time.monotonic()
        try:
            load_op(builder(), lambda: None)
            tell("compile", op=builder.NAME, seconds=time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the others are compiled all the same
            tell("compile", op=builder.NAME, error=first_line(error))


def measure_peaks() -> None:
    """Peaks as `tuneyard` measures them on a card that the catalog lacks, beside those that the catalog has."""
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
    """The tests of tests/gpu, a line for each that failed."""
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    lines = done.stdout.strip().splitlines() or [f"pytest ended with {done.returncode}"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    tell("tests", summary=lines[-1].strip("= "), failed=failed, ok=done.returncode == 0)


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
