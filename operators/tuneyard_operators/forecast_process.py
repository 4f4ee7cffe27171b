"""Code of the hub's forecast process.

The module stands outside `hub`, whose import loads the clients of API servers, which a forecast does not need.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping

from tuneyard.federation import Policy, World, forecast

Starts = Mapping[tuple[str, str], float]
"""Job and task -> seconds since the epoch."""
_MOMENTS = 5000
_PR_SET_PDEATHSIG = 1


def end_with(hub: int) -> None:
    """Let the kernel end this process together with the hub, even if the hub is killed. `hub`: its process id. Works on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != hub:  # the hub ended before the call
            os._exit(0)


def predict_starts(world: World, policy: Policy, now: float) -> tuple[Starts, float]:
    """Predicted starts, and the CPU seconds of the prediction, without the start of this process."""
    began = time.process_time()
    return forecast(world, policy, now, limit=_MOMENTS), time.process_time() - began
