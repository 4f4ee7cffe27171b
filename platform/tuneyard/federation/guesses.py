"""Corrections of the durations that teams guess: the errors of ended tasks correct the guesses of waiting tasks.

Without corrections, a team that understates its durations comes first: in a simulation, a team that stated a tenth of its true durations
had its results a quarter sooner, at the cost of the other teams.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import replace
from typing import NamedTuple

from tuneyard.federation.pools import Key
from tuneyard.federation.world import Ask

_FADES = 0.98
"""The weight of a task relative to the next task of its team that ended: older tasks count less."""
_LAST = 1000
"""The latest tasks of a team that are summed again after a change out of order. Older tasks have almost no weight (two in a billion)."""
_DOUBT = 4.0
"""The weight, in tasks, of the prior: a team guesses right on average, and its guesses of one size are as wrong as all its guesses."""
_MOST = 100.0
"""The largest error that counts, as a factor."""
_EXCUSED = 4.0
"""A task that was up to this factor shorter than its guess has full weight. Shorter tasks have less, in proportion to their duration:
otherwise tasks of a second, which cost nothing, would buy trust for false guesses."""
_MOVES = 1.5
"""Waiting asks of a team are corrected again once a correction has changed by this factor."""


class _Known(NamedTuple):
    """An ended task. `error`: logarithm of true duration over guess. `size`: power of ten of the guess in seconds. `weight`: at most 1."""

    ended: float
    key: Key
    error: float
    size: int
    weight: float


class _Team:
    """The ended tasks of a team by time of end, and their weighted sums of errors: over all, and by size.

    All tasks are kept, as JobSpecs are. Where the latest tasks are deleted, earlier ones count again, as they do for the next leader.
    """

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._of_all = [0.0, 0.0]
        self._of_size: dict[int, list[float]] = {}
        self._is_counted = True
        self.handed: dict[int, float] = {}
        """Corrections by size, as first used since their last change by `_MOVES`."""

    def add(self, known: _Known) -> None:
        is_last = not self._known or known > self._known[-1]
        insort(self._known, known)
        if is_last and self._is_counted:
            self._count(known)
        else:
            self._is_counted = False

    def remove(self, known: _Known) -> None:
        at = bisect_left(self._known, known)
        if at < len(self._known) and self._known[at] == known:
            del self._known[at]
            self._is_counted = False

    def correction(self, size: int) -> float:
        if not self._is_counted:
            self._count_anew()
        usual = self._of_all[0] / (self._of_all[1] + _DOUBT)
        total, weight = self._of_size.get(size, (0.0, 0.0))
        return math.exp((total + _DOUBT * usual) / (weight + _DOUBT))

    def has_moved(self) -> bool:
        moved = [size for size, before in self.handed.items() if abs(math.log(self.correction(size) / before)) >= math.log(_MOVES)]
        for size in moved:
            del self.handed[size]
        return bool(moved)

    def _count(self, known: _Known) -> None:
        """Add a task that has ended after all others."""
        for sums in (self._of_all, *self._of_size.values()):
            sums[0] *= _FADES
            sums[1] *= _FADES
        for sums in (self._of_all, self._of_size.setdefault(known.size, [0.0, 0.0])):
            sums[0] += known.weight * known.error
            sums[1] += known.weight

    def _count_anew(self) -> None:
        self._of_all, self._of_size = [0.0, 0.0], {}
        for known in self._known[-_LAST:]:
            self._count(known)
        self._is_counted = True


class Guesses:
    """Ended tasks, by team. Corrections follow from the set of tasks, not from the order in which tasks were added. So the next leader has
    the same corrections when it has read all tasks again."""

    def __init__(self) -> None:
        self._teams: dict[str, _Team] = {}
        self._by_key: dict[Key, tuple[str, _Known]] = {}

    def learn(self, key: Key, team: str, said_s: float, took_s: float, ended: float) -> bool:
        """Add an ended task. It took `took_s`, and `said_s` was its author's guess, both in seconds on the reference SKU. `ended`: seconds
        since the epoch. True: corrections of its team have changed, and its waiting asks are to be corrected again. Durations that are not
        positive and finite are ignored."""
        if key in self._by_key or not (0 < said_s < math.inf and 0 < took_s < math.inf and math.isfinite(ended)):
            return False
        error = max(-math.log(_MOST), min(math.log(_MOST), math.log(took_s) - math.log(said_s)))
        known = _Known(ended, key, error, _size(said_s), min(1.0, _EXCUSED * took_s / said_s))
        self._by_key[key] = (team, known)
        of = self._teams.setdefault(team, _Team())
        of.add(known)
        return of.has_moved()

    def forget(self, key: Key) -> None:
        """Remove a task."""
        found = self._by_key.pop(key, None)
        if found is not None:
            self._teams[found[0]].remove(found[1])

    def correction(self, team: str, said_s: float) -> float:
        """The factor for a guess of a team: the geometric mean of true duration over guess, over its latest tasks. Guesses of each size
        (power of ten of seconds) have their own factor, so that many true guesses of short tasks do not hide one false guess of a long
        task."""
        if not 0 < said_s < math.inf:
            return 1.0
        of, size = self._teams.setdefault(team, _Team()), _size(said_s)
        found = of.correction(size)
        of.handed.setdefault(size, found)
        return found

    def corrected(self, ask: Ask) -> Ask:
        """An ask with its guess corrected. An ask whose duration is not its author's guess stays as it is."""
        if ask.basis != "given":
            return ask
        correction = self.correction(ask.team, ask.seconds)
        return ask if correction == 1.0 else replace(ask, seconds=ask.seconds * correction, basis="corrected")


def _size(said_s: float) -> int:
    return math.floor(math.log10(said_s))
