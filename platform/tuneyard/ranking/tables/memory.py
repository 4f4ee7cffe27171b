"""Memory of large tables on the host, in huge pages where the kernel has them: rows are read and written at random, and with pages of 4 kB
every access also looks up its page."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress

import torch

_LEAST_BYTES = 1 << 22


def empty_rows(height: int, width: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[height, width], of any content."""
    size = math.prod((height, width, dtype.itemsize))
    if device.type != "cpu" or size < _LEAST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(height, width, dtype=dtype, device=device)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # of a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(height, width)
