"""Keeps freed memory in the process. By default glibc returns freed tensors of some MB to the kernel, which clears the same pages again for
the next step. docs/design/141-ranker-tables.md has the cost, in one loop with and without it.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of parameters of mallopt(3)."""
_KEPT_BYTES = 1 << 30
"""Free memory that is kept at the end of the heap."""
_LARGEST_BYTES = 32 << 20
"""The largest tensor on the heap that glibc allows. Larger ones return to the kernel when they are freed."""


def keep_freed_memory() -> bool:
    """Configure this process's allocator. Returns whether it is glibc's; other allocators (musl's, jemalloc) stay unchanged."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and libc.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES))
    return False
