"""Counts the processes of this machine (or of this container) that the kernel has killed for lack of memory."""

from __future__ import annotations

from pathlib import Path

_MACHINE = Path("/proc/vmstat")
_CONTAINER = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def oom_kills(*, in_container: bool = False) -> int:
    """Sum of the kernel's counters that exist here. Only the difference of two calls has a meaning.

    `in_container`: if the container has a counter of its own, kills outside the container do not count.
    """
    own = [path for path in _CONTAINER if path.exists()]
    return sum(_counted(path) for path in (own if in_container and own else [_MACHINE, *own]))


def _counted(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
