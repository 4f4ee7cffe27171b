"""Memory that a step frees stays with the process. glibc hands freed tensors of some MB back to the kernel, which clears the same pages
again for the next step. What it costs: docs/benchmarks/ranker_torchrec.md has one loop with and without."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""mallopt(3)'s numbers of its parameters."""
_KEPT_BYTES = 1 << 30
"""Free memory at the end of the heap that is kept."""
_LARGEST_BYTES = 32 << 20
"""Of a tensor on the heap, the largest that glibc allows. Larger ones return to the kernel when they are freed."""


def keep_freed_memory() -> bool:
    """Change this process's allocator, and say whether it is glibc's. Other allocators (musl's, jemalloc) stay as they are."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and libc.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES))
    return False
