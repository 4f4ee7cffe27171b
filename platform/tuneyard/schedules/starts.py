"""A run to start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tuneyard.api.schedule_status import RunKind


@dataclass(frozen=True)
class Start:
    """A run to start: its name, when it was due, and who asked for it."""

    name: str
    due: datetime
    kind: RunKind = "scheduled"
