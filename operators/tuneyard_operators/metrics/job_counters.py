"""Keeps counters of a job from falling, which Prometheus would take for a restart and count anew.

The time of an attempt counts to now while it runs, and to its end afterwards. The end is earlier than the last time told: it is cut to
whole seconds, and the hub may learn late of it. A status may also drop its oldest attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from tuneyard_operators.metrics.families import Family


class JobCounters:
    """The highest values told of each job, by its uid. A new leader begins with none."""

    def __init__(self) -> None:
        self._told: dict[str, dict[Family, float]] = {}

    def rising(self, uid: str, values: Iterable[tuple[Family, float]]) -> Iterator[tuple[Family, float]]:
        """The values of a job, each counter at least as high as before."""
        told = self._told.setdefault(uid, {})
        for family, value in values:
            if family.is_counter:
                told[family] = max(value, told.get(family, value))
                yield family, told[family]
            else:
                yield family, value

    def keep(self, uids: Set[str]) -> None:
        """Forget all other jobs."""
        for uid in self._told.keys() - uids:
            del self._told[uid]
