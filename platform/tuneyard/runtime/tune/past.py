"""Past runs of this platform, for whoever plans and searches here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tuneyard.api import BadInput, StorageError


def past_attempts(warn: Callable[[str], object]) -> list[dict[str, Any]]:
    """Past runs as history has them; none where TUNEYARD_HISTORY is off, or, after a word to `warn`, where history cannot be read."""
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
