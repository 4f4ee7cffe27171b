"""Processes that start with their libraries loaded.

`WarmServer` starts a fork server: a process that imports a stack of modules once, waits, and forks on request. `start` asks it
for a process and falls back to a cold start; `shim_command` is a Python executable for Ray that does the same, so that Ray's own
workers are forks. A server that is dead, slow, from another environment or older than the installed packages means a cold start, and
the reason is told. The server ends with its owner, and kills what it forked when its client is gone.
"""

from tuneyard.warm.folders import temporary_folder
from tuneyard.warm.process import WHY_COLD, Started, start
from tuneyard.warm.same import read_at_import
from tuneyard.warm.servers import WarmServer, possible, shim_command
from tuneyard.warm.stack import without

__all__ = ["WHY_COLD", "Started", "WarmServer", "possible", "read_at_import", "shim_command", "start", "temporary_folder", "without"]
