"""Host memory of large tables, in huge pages if the kernel has them. Rows are read and written at random, and with pages of 4 kB every
access also looks up its page.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress

import torch

_LEAST_BYTES = 1 << 22


def empty_rows(height: int, width: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor [height, width] with undefined content."""
    size = math.prod((height, width, dtype.itemsize))
    if device.type != "cpu" or size < _LEAST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(height, width, dtype=dtype, device=device)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # for a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(height, width)
