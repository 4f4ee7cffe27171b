"""Whether a process still works on a run. `tuneyard run` holds a lock (flock) on `.lock` in its output folder as long as it lives.

The lock is looked up in Linux's table of locks. Taking it for a test could make a run that starts at this moment believe that another one
writes into its folder.
"""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted
from tuneyard.runtime.output import LOCK
from tuneyard.storage.uris import is_local, local_path

KILLED = "killed"
"""What views call the status of an orphaned run. Its records say `running`, since nobody was left to write another word."""
_LOCKS = Path("/proc/locks")


def say_orphaned(output: str | None) -> str:
    """For people: what has become of an orphaned run, and how it goes on."""
    return f"no process works on it any more; go on: tuneyard run FILE --out {quoted(output or 'FOLDER')} --resume"


def is_orphaned(status: str, output: str | None) -> bool:
    """Whether a run's record says running, its output folder is on this machine, and no process holds it. False where none can tell."""
    if status != "running" or not output or not is_local(output):
        return False
    try:
        inode = (local_path(output) / LOCK).stat().st_ino
        locks = _LOCKS.read_text()
    except (BadInput, OSError, ValueError):
        return False
    return not any(f":{inode} " in line and " FLOCK " in line for line in locks.splitlines())
