"""Warm starts: processes that start with their libraries already imported.

1. `WarmServer` starts a fork server. This process imports a stack of modules once, waits, and forks on request.
2. `start` requests a process from the server. `shim_command` does the same for Ray: it gives a Python executable that makes Ray's workers
   forks.
3. If the server is dead, slow, from another environment, or older than the installed packages, the process is started cold, and the reason
   is reported.
4. The server ends with its owner. It kills a forked process when the client that requested it is gone.
"""

from tuneyard.warm.compatibility import read_at_import
from tuneyard.warm.folders import temporary_folder
from tuneyard.warm.process import WHY_COLD, Started, start
from tuneyard.warm.servers import WarmServer, possible, shim_command
from tuneyard.warm.stack import without

__all__ = ["WHY_COLD", "Started", "WarmServer", "possible", "read_at_import", "shim_command", "start", "temporary_folder", "without"]
