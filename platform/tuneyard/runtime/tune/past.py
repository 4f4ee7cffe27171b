"""Reads past runs for planning and search: from the history of this platform, and what a hub has given to the attempt of this pod."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.tuning.passed_on import PAST_RUNS, unpacked


def past_attempts(warn: Callable[[str], object]) -> list[dict[str, Any]]:
    """Past runs, oldest first. None of history if TUNEYARD_HISTORY is off. What cannot be read is reported to `warn`."""
    from tuneyard.tracking.history import History, has_history

    runs: list[dict[str, Any]] = []
    try:
        if given := os.environ.get(PAST_RUNS):
            runs += unpacked(given)
        if os.environ.get("TUNEYARD_HISTORY", "on") != "off" and has_history():
            history = History.open()
            runs += history.training_runs()
            history.close()
    except (StorageError, BadInput) as error:
        warn(error.cause)
    return runs
