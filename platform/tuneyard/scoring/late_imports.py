"""Loads what every engine on cpu imports late, a second of its start: the server of engines loads it before it forks them.

With humming's kernels, which only the GPU stack has, that starts threads, and nothing could fork.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("humming") is None:
    import vllm.v1.worker.cpu_worker  # noqa: F401
