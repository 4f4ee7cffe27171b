"""The settings of run history on a hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

_DAY_S = 86_400.0
Shared = Literal["all", "namespace", "none"]


@dataclass(frozen=True, kw_only=True)
class HistorySettings:
    """`url`: the database, as `TUNEYARD_HISTORY_URL` holds it; empty: no history."""

    url: str = field(default="", repr=False)
    hold_s: float = _DAY_S
    """Longest time for which a deleted JobSpec waits for its record. A day is enough for people to see the alert and repair the database.
    Only JobSpecs wait: their pods are gone, and their GPUs free. A database that is gone for good holds a namespace no longer than that."""
    series_days: float = 90.0
    """Days after the end of an attempt until its series of steps is removed; all else stays. 0: it stays too."""
    thin_days: float = 7.0
    """Days after the end of an attempt until its series is thinned to `MOST_POINTS` points. 0: never."""
    paced_s: float = 30.0
    """Seconds between two samples of the progress of a job."""
    shared: Shared = "all"
    """Whose training runs a search learns from: of all teams, of its own namespace, or of nobody. It sees figures, and no names."""
