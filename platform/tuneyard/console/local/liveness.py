"""Whether a process still works on a run. `tuneyard run` holds a lock (flock) on `.lock` in its output folder as long as it lives.

The lock is looked up in Linux's table of locks. Taking it for a test could make a run that starts at this moment believe that another one
writes into its folder.
"""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.storage.uris import is_local, local_path
from tuneyard.tracking.past import PastJob

_LOCKS = Path("/proc/locks")


def is_orphaned(run: PastJob) -> bool:
    """Whether history says running, the output folder is on this machine, and no process holds it. False where that cannot be told."""
    if run.status != "running" or not run.output or not is_local(run.output):
        return False
    try:
        inode = (local_path(run.output) / ".lock").stat().st_ino
        locks = _LOCKS.read_text()
    except (BadInput, OSError, ValueError):
        return False
    return not any(f":{inode} " in line and " FLOCK " in line for line in locks.splitlines())
