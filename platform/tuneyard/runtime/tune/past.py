"""Reads past runs from the history of this platform, for planning and search."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tuneyard.api import BadInput, StorageError


def past_attempts(warn: Callable[[str], object]) -> list[dict[str, Any]]:
    """Past runs in history. Empty if TUNEYARD_HISTORY is off, or if history cannot be read, which is reported to `warn`."""
    from tuneyard.tracking.history import History, has_history

    runs: list[dict[str, Any]] = []
    try:
        if os.environ.get("TUNEYARD_HISTORY", "on") != "off" and has_history():
            history = History.open()
            runs = history.training_runs()
            history.close()
    except (StorageError, BadInput) as error:
        warn(error.cause)
    return runs
