"""Measures the best matmuls and copies of a device: `python -m tuneyard.catalog.measure gpu` (or `cpu THREADS`) prints them as JSON.

`measurement_process` runs it as a separate process, and nothing imports it, so that the catalog loads neither torch nor numpy. Each
measurement is repeated for a part of a second, and the fastest run counts: other work on the machine can only make a run slower. A GPU
takes less than a minute: five precisions of five sizes, and three kinds of copy.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SIZES = (256, 512, 1024, 2048)
"""Rows and columns of the matrices. Large ones suit many cores. Small ones can finish undisturbed on a busy machine."""
GPU_SIZES = (1024, 2048, 4096, 8192, 16384)
BUFFER_BYTES = 256 * 2**20
GPU_BUFFER_BYTES = 2**30
"""Larger than the caches of any GPU."""
_MATRICES = 5
"""Memory for a matmul, in fp32 matrices: operands, their sources, and the result."""
REPEAT_S = 0.4
_BATCH_S = 0.02
"""Seconds of GPU work between two reads of the clock, so that launches do not count."""


def best_s(work: Callable[[], Any]) -> float:
    """Seconds of the fastest run, after one warm-up run."""
    work()
    times: list[float] = []
    while sum(times) < REPEAT_S:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def best_rate(rate: Callable[[int], float], sizes: Sequence[int]) -> float:
    """FLOP/s of the best size. A size that would take too long is left out: emulated bf16 may be a hundred times slower."""
    best = 0.0
    for size in sizes:
        if best and 2 * size**3 / best > REPEAT_S:
            break
        best = max(best, rate(size))
    return best


@dataclass(frozen=True)
class Bench:
    """Matmuls and copies of one torch device, `cpu` or `cuda` (an AMD GPU under ROCm)."""

    device: torch.device
    sizes: Sequence[int]
    buffer_bytes: int
    """Bytes of each side of a copy."""

    def seconds(self, work: Callable[[], Any]) -> float:
        """Seconds of one run of `work` on a busy device."""
        if self.device.type == "cpu":
            return best_s(work)
        import torch

        def several(times: int) -> None:
            for _ in range(times):
                work()
            torch.cuda.synchronize(self.device)

        once = best_s(partial(several, 1))
        times = max(1, round(_BATCH_S / once))
        return best_s(partial(several, times)) / times if times > 1 else once

    def matmul(self, dtype: torch.dtype, *, tf32: bool = False) -> float:
        """FLOP/s of the fastest size. `tf32`: whether fp32 may be computed in TF32, if the device has it."""
        import torch

        def rate(size: int) -> float:
            a, b = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
            return 2 * size**3 / self.seconds(lambda: a @ b)

        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            return best_rate(rate, self.sizes)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def fp8(self) -> float:
        """FLOP/s of matmuls of 8-bit floats with accumulation in fp32 and one scale per matrix. Raises if torch has no kernel here."""
        import torch

        one = torch.ones((), device=self.device)
        kind = torch.float8_e4m3fnuz if _is_old_amd(self.device) else torch.float8_e4m3fn

        def rate(size: int) -> float:
            a = torch.randn(size, size, device=self.device).to(kind)
            b = torch.randn(size, size, device=self.device).to(kind).t()  # the kernels need a column-major operand
            return 2 * size**3 / self.seconds(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))

        return best_rate(rate, self.sizes)

    def copy_gb_s(self, source: torch.device, *, pinned: bool = False) -> float:
        """GB/s of a copy from `source` to the device, one direction. Within a device each byte is read and written, and counts twice."""
        import torch

        there = torch.ones(self.buffer_bytes // 4, device=source)
        there = there.pin_memory() if pinned else there
        here = torch.empty(self.buffer_bytes // 4, device=self.device)
        moved = (2 if source == self.device else 1) * self.buffer_bytes
        return moved / self.seconds(lambda: here.copy_(there, non_blocking=True)) / 1e9


def _is_old_amd(device: torch.device) -> bool:
    """Whether the device is of the MI300 series, whose 8-bit floats have their own format."""
    import torch

    return torch.version.hip is not None and "gfx94" in torch.cuda.get_device_properties(device).gcnArchName


def measure_cpu(threads: int) -> dict[str, Any]:
    """Peaks and memory bandwidth of all cores."""
    import torch

    torch.set_num_threads(threads)
    bench = Bench(torch.device("cpu"), SIZES, BUFFER_BYTES)
    peaks = {"fp32": bench.matmul(torch.float32), "bf16": bench.matmul(torch.bfloat16)}
    return {"peak_flops": peaks, "memory_bandwidth_gb_s": bench.copy_gb_s(bench.device)}


def measure_gpu() -> dict[str, Any]:
    """Peaks by precision, memory bandwidth and links of the first visible GPU. Raises RuntimeError if torch sees none."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU: the driver, or the build of torch, is not the one for it")
    device = torch.device("cuda", 0)
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    capability = f"sm{properties.major}{properties.minor}"
    free, _ = torch.cuda.mem_get_info(device)
    sizes = [size for size in GPU_SIZES if _MATRICES * 4 * size**2 < free] or [GPU_SIZES[0]]
    return {
        "name": properties.name,
        "vendor": "amd" if hip else "nvidia",
        "architecture": properties.gcnArchName.split(":")[0] if hip else capability,
        "memory_gb": properties.total_memory / 1e9,
        "library": f"torch {torch.__version__}",
        **measured_rates(Bench(device, sizes, min(GPU_BUFFER_BYTES, free // 4))),
    }


def measured_rates(bench: Bench) -> dict[str, Any]:
    """Rates of a device. TF32 counts if it is faster than fp32, bf16 if it is not emulated, 8 bits if torch has kernels."""
    import torch

    on_gpu = bench.device.type == "cuda"
    peaks = {"fp32": bench.matmul(torch.float32), "fp16": bench.matmul(torch.float16), "bf16": bench.matmul(torch.bfloat16)}
    if peaks["bf16"] < peaks["fp16"] / 4:
        del peaks["bf16"]  # emulated: before Ampere
    tf32 = bench.matmul(torch.float32, tf32=True)
    if tf32 > 1.3 * peaks["fp32"]:
        peaks["tf32"] = tf32
    with suppress(RuntimeError, ValueError, AttributeError, NotImplementedError):  # before Ada and MI300, and in builds without kernels
        peaks["fp8"] = bench.fp8()
    host = bench.copy_gb_s(torch.device("cpu"), pinned=on_gpu)
    several = on_gpu and torch.cuda.device_count() > 1
    peer = bench.copy_gb_s(torch.device("cuda", 1)) if several else host
    return {
        "peak_flops": peaks,
        "memory_bandwidth_gb_s": bench.copy_gb_s(bench.device),
        "pcie_gb_s": 2 * host,
        "link_gb_s": 2 * peer,
    }


def measure_with_numpy() -> dict[str, Any]:
    """Peaks of the CPU, if torch is not installed."""
    import numpy as np

    def rate(size: int) -> float:
        a = np.ones((size, size), dtype=np.float32)
        return 2 * size**3 / best_s(lambda: a @ a)

    source, target = np.ones(BUFFER_BYTES // 4, dtype=np.float32), np.empty(BUFFER_BYTES // 4, dtype=np.float32)
    bandwidth = 2 * BUFFER_BYTES / best_s(lambda: np.copyto(target, source)) / 1e9
    return {"peak_flops": {"fp32": best_rate(rate, SIZES)}, "memory_bandwidth_gb_s": bandwidth}


def main() -> None:
    if sys.argv[1] == "gpu":
        measured = measure_gpu()
    else:
        try:
            measured = measure_cpu(int(sys.argv[2]))
        except ModuleNotFoundError:
            measured = measure_with_numpy()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
