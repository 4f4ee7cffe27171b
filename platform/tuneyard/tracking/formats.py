"""Numbers as people read them, the same in terminals, notebooks, reports and the console: short, with units, never more digits than were
measured."""

from __future__ import annotations

import math

MISSING = "–"


def number(value: float | int | None, digits: int = 3) -> str:
    """`digits` significant digits, thousands as k, M, G: 1234 -> 1.23k."""
    if value is None or not math.isfinite(value):
        return MISSING
    if isinstance(value, int) and abs(value) < 10_000:
        return f"{value:,}"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 999.9 would be rounded to 1000.
        if abs(value) >= size * (1 - 0.5 * 10**-digits):
            return f"{_significant(value / size, digits)}{unit}"
    return _significant(value, digits)


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    # Rounded first: 0.9996 has one digit more before the point than its logarithm says.
    value = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > digits + 2:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):.{max(places, 0)}f}"


def rate(per_s: float | None) -> str:
    """Tokens or rows per second: 1943.4 -> 1,943; below 100, three significant digits."""
    if per_s is None or not math.isfinite(per_s):
        return MISSING
    return f"{per_s:,.0f}" if per_s >= 99.95 else _significant(per_s, 3)


def percent(share: float | None) -> str:
    """0.4173 -> 41.7%; below a tenth of a percent, two significant digits."""
    if share is None or not math.isfinite(share):
        return MISSING
    value = 100 * share
    return f"{_significant(value, 2) if abs(value) < 0.1 else f'{value:.1f}'}%"


def duration(seconds: float | None) -> str:
    """0.0123 -> 12.3 ms, 75 -> 1 min 15 s, 7322 -> 2 h 2 min."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 1:
        return f"{_significant(1000 * seconds, 3)} ms"
    if seconds < 60:
        return f"{_significant(seconds, 3)} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def gigabytes(value: float | None) -> str:
    """In 1e9 bytes."""
    return MISSING if value is None or not math.isfinite(value) else f"{_significant(value, 3)} GB"
