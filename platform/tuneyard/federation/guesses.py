"""What a team's guesses of durations are worth: how wrong they were for tasks that have ended corrects those that wait.

Without it, whoever understates goes first: a team that said a tenth of what its jobs take had its results a quarter sooner, at the others'
cost.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import replace
from typing import NamedTuple

from tuneyard.federation.pools import Key
from tuneyard.federation.world import Ask

_FADES = 0.98
"""A task counts so many times as much as the one of its team that ended after it."""
_LAST = 1000
"""Tasks of a team that are counted anew where one came or went out of order: older ones count next to nothing (two in a billion)."""
_DOUBT = 4.0
"""A team is taken to guess right until more tasks than this have shown otherwise; and guesses of one size to be as wrong as all of its."""
_MOST = 100.0
_EXCUSED = 4.0
"""A task that has taken so many times less than was said counts in full, and the less, the shorter it was: what costs nobody a machine
teaches nothing, or tasks of a second would buy trust for false guesses."""
_MOVES = 1.5
"""Who waits is judged anew once the correction of its guess has moved by this factor."""


class _Known(NamedTuple):
    """A task that has ended. `error`: logarithm of the truth over what was said; `size`: of what was said, by powers of ten; `weight`: what
    it counts for."""

    ended: float
    key: Key
    error: float
    size: int
    weight: float


class _Team:
    """The tasks of a team by their end, and their errors summed with what they count for: of all, and by size.

    All are kept, as JobSpecs are: where the last ones are deleted, those before them count again, as they do for the next leader.
    """

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._of_all = [0.0, 0.0]
        self._of_size: dict[int, list[float]] = {}
        self._is_counted = True
        self.handed: dict[int, float] = {}
        """Corrections as they were when they were first asked for since they moved."""

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
        """Take in one that has ended after all others."""
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
    """Tasks that have ended, by team. What it says follows from the set of them, in whatever order they were told: the next leader, who
    reads them anew, corrects alike."""

    def __init__(self) -> None:
        self._teams: dict[str, _Team] = {}
        self._by_key: dict[Key, tuple[str, _Known]] = {}

    def learn(self, key: Key, team: str, said_s: float, took_s: float, ended: float) -> bool:
        """A task has taken `took_s`, where `said_s` was its author's guess (both on the reference SKU); `ended`: when, in seconds since the
        epoch. True where corrections of its team have moved: those who wait are to be corrected again. Nonsense (nothing, less than
        nothing, no number) teaches nothing."""
        if key in self._by_key or not (0 < said_s < math.inf and 0 < took_s < math.inf and math.isfinite(ended)):
            return False
        error = max(-math.log(_MOST), min(math.log(_MOST), math.log(took_s) - math.log(said_s)))
        known = _Known(ended, key, error, _size(said_s), min(1.0, _EXCUSED * took_s / said_s))
        self._by_key[key] = (team, known)
        of = self._teams.setdefault(team, _Team())
        of.add(known)
        return of.has_moved()

    def forget(self, key: Key) -> None:
        """A task is not known any more."""
        found = self._by_key.pop(key, None)
        if found is not None:
            self._teams[found[0]].remove(found[1])

    def correction(self, team: str, said_s: float) -> float:
        """What a guess of a team is to be multiplied by: the geometric mean of truth over guess, of its last tasks. Guesses of one size
        (seconds by powers of ten) are judged by their own, so that many small true ones do not cover a large false one."""
        if not 0 < said_s < math.inf:
            return 1.0
        of, size = self._teams.setdefault(team, _Team()), _size(said_s)
        found = of.correction(size)
        of.handed.setdefault(size, found)
        return found

    def corrected(self, ask: Ask) -> Ask:
        """An ask with what its team's guess is worth; the ask itself where its duration is no guess of its author."""
        if ask.basis != "given":
            return ask
        correction = self.correction(ask.team, ask.seconds)
        return ask if correction == 1.0 else replace(ask, seconds=ask.seconds * correction, basis="corrected")


def _size(said_s: float) -> int:
    return math.floor(math.log10(said_s))
