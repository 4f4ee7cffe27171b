"""Measure this machine's best matmul and memory bandwidth: `python -m tuneyard.catalog.measure_cpu THREADS` prints them as JSON.

Run as a process of its own by `cpu.this_machine`; nothing imports it, so that the catalog loads neither torch nor numpy.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

SIZES = (256, 512, 1024, 2048)
"""Rows and columns of the matrices. Large ones suit many cores; small ones end before something else on a busy machine cuts in."""
BUFFER_BYTES = 256 * 2**20
REPEAT_S = 1.0
"""Seconds of repeats, of which the fastest counts: other work on the machine can only make a run slower."""


def best_s(work: Callable[[], Any]) -> float:
    """Seconds of the fastest run, after one to warm up."""
    work()
    times: list[float] = []
    while sum(times) < REPEAT_S:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def best_rate(rate: Callable[[int], float]) -> float:
    """FLOP/s of the size that does best. A size that would take too long is left out: bf16 may be emulated a hundred times slower."""
    best = 0.0
    for size in SIZES:
        if best and 2 * size**3 / best > REPEAT_S:
            break
        best = max(best, rate(size))
    return best


def measure_with_torch(threads: int) -> dict[str, Any]:
    import torch

    def rate(size: int, dtype: torch.dtype) -> float:
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        return 2 * size**3 / best_s(lambda: a @ b)

    torch.set_num_threads(threads)
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    peaks = {name: best_rate(partial(rate, dtype=dtype)) for name, dtype in dtypes.items()}
    source, target = torch.ones(BUFFER_BYTES // 4), torch.empty(BUFFER_BYTES // 4)
    return {"peak_flops": peaks, "memory_bandwidth_gb_s": 2 * BUFFER_BYTES / best_s(lambda: target.copy_(source)) / 1e9}


def measure_with_numpy() -> dict[str, Any]:
    import numpy as np

    def rate(size: int) -> float:
        a = np.ones((size, size), dtype=np.float32)
        return 2 * size**3 / best_s(lambda: a @ a)

    source, target = np.ones(BUFFER_BYTES // 4, dtype=np.float32), np.empty(BUFFER_BYTES // 4, dtype=np.float32)
    bandwidth = 2 * BUFFER_BYTES / best_s(lambda: np.copyto(target, source)) / 1e9
    return {"peak_flops": {"fp32": best_rate(rate)}, "memory_bandwidth_gb_s": bandwidth}


def main() -> None:
    try:
        measured = measure_with_torch(int(sys.argv[1]))
    except ModuleNotFoundError:
        measured = measure_with_numpy()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
