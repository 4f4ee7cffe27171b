"""`tuneyard attempt`: the program of an attempt's head pod. People use `tuneyard run`."""

from __future__ import annotations

import os


def attempt() -> int:
    """Run the task that the environment names (docs/design/060-jobs-on-members.md), on the Ray cluster of this pod.

    Exit code 0: it succeeded; 3: it was asked to stop, and did; 1: it failed, and its AttemptReport says how.
    """
    from tuneyard.cli.progress.plain import PlainProgress
    from tuneyard.runtime import run_attempt

    # A pod's own history would be lost with the pod. A shared history has a URL.
    if "TUNEYARD_HISTORY_URL" not in os.environ:
        os.environ.setdefault("TUNEYARD_HISTORY", "off")
    return run_attempt(os.environ, PlainProgress)
