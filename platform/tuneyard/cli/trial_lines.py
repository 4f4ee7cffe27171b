"""A trial of a tune task in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.tracking import Tried


def trial_line(event: Tried) -> str:
    """Settings, measured rate, ratio to the file's own settings, and prediction."""
    of_gang = [f"gang {event.gang}"] if event.gang else []
    parts = [f"trial {event.number}/{event.of}", *of_gang, words(event.settings) or "settings of the file"]
    if event.measured is None:
        parts.append(f"failed: {event.failure}")
    else:
        parts.append(f"{event.measured:,.0f} {event.unit}/s")
        if event.ratio is not None:
            parts.append(f"{event.ratio:.2f}x")
    if event.predicted is not None:
        parts.append(f"predicted {event.predicted:,.0f}")
    return "  ".join([*parts, f"{event.seconds:.0f} s"])


def words(settings: Mapping[str, Any]) -> str:
    """Settings as people read them: last parts of the paths."""
    return ", ".join(f"{path.removeprefix('strategy.')} {str(value).lower()}" for path, value in settings.items())
