"""A search by measurement: rounds of trials beside the incumbent, then pairs that confirm or refute the winner.

1. Rounds. Machines are noisy and drift, so the incumbent (the settings of the file) runs again in each round, and a trial counts relative
   to the incumbent of its round.
2. Pairs. The best trial is confirmed in pairs with the incumbent. A trial that lost to the incumbent is not confirmed.

Several gangs may measure side by side. Machines differ, so each gang measures the incumbent in each round too, and both runs of a pair are
of one gang. The points of a round wait in one list, from which a gang takes the next one as soon as it is free.

All results are a `Record`, which is kept after each measurement: an interrupted search continues from it.

The budget limits the number of runs (`shares` divides it) and the total time. A run without enough time left is not started. If the time
ends during a run, the run is cut off and does not count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from tuneyard.tuning.record import Record, Trial
from tuneyard.tuning.searcher import Searcher
from tuneyard.tuning.space import Point

NO_GAIN = 0.01
"""Smallest gain over the best that counts. The search ends after two rounds without a gain."""


@dataclass(frozen=True)
class Shares:
    """Division of a budget of runs: candidates, the incumbent once per round and gang, and pairs of two runs. `gangs`: those that have
    work."""

    candidates: int
    rounds: int
    pairs: int
    gangs: int = 1

    @property
    def own(self) -> int:
        """Runs of the incumbent in the rounds."""
        return self.rounds * self.gangs


def shares(trials: int, rounds: int, pairs: int, gangs: int = 1) -> Shares:
    """The shares of a budget of `trials` runs. Pairs take at most half, and the incumbent a third of the rest, so that each gang tries at
    least two candidates in each round. A small budget has one round, in which each gang tries at least one. Raises ValueError below two
    runs.
    """
    if trials < 2:
        raise ValueError("a comparison takes two runs")
    pairs = min(pairs, trials // 4)
    rest = trials - 2 * pairs
    gangs = max(1, min(gangs, rest // 2))
    rounds = min(rounds, max(1, rest // (3 * gangs)))
    return Shares(candidates=rest - rounds * gangs, rounds=rounds, pairs=pairs, gangs=gangs)


class IncumbentFailed(Exception):
    """The settings of the file do not run, so there is no reference."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.message or trial.failure)
        self.trial = trial


class _Spent(Exception):
    """No further run can be started, or the time has ended during one."""


class TrialGangs(Protocol):
    """The gangs that measure, numbered from 0. Each has one run at a time."""

    @property
    def count(self) -> int: ...

    def start(self, gang: int, point: Mapping[str, Any], number: int, first_s: float | None) -> None:
        """Start a run of a point on a gang that has none. The empty point is the incumbent. `number`: of the run. `first_s`: seconds that
        the incumbent took; None: not known yet."""

    def ended(self) -> tuple[int, Trial | None]:
        """Wait until a run has ended. Returns its gang and its result; None after a request to stop, also by `Search.seconds`."""


_Runs = Generator[Point, Trial, None]
"""The runs of one gang in turn: yields the point to measure, and is sent the result."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search. `worth`: the quantity to maximise, of a trial that ran (tokens/s, or tokens/s/GPU). `keep` is called after each change of
    the record; `heard` with each measurement, including its ratio if it is known by then.

    `trials`: limit of all runs together; `pairs`: number of pairs that confirm the winner, as far as the budget allows; `seconds`: limit of
    the total time, None: no limit; `now`: a clock in seconds.
    """

    trials: int
    rounds: int
    pairs: int
    seconds: float | None
    worth: Callable[[Trial], float]
    gangs: TrialGangs
    heard: Callable[[Trial], None]
    keep: Callable[[Record], None]
    now: Callable[[], float]

    def run(self, record: Record, searcher: Callable[[], Searcher]) -> bool:
        """Search and confirm, starting from `record`, and write into it. False after a request to stop before the end.

        Raises IncumbentFailed if the settings of the file have never run. Runs of other gangs may not have ended then.
        """
        return _Running(self, record).run(searcher)


class _Running:
    """One start of a search. This object alone hands out points and writes the record, so that no two gangs measure the same point."""

    def __init__(self, search: Search, record: Record) -> None:
        self._search, self._record = search, record
        self._shares = shares(search.trials, search.rounds, search.pairs, search.gangs.count)
        self._began = search.now()
        self._runs = 0
        self._searcher: Searcher | None = None
        self._reference = 0.0
        """Worth of the first run of the incumbent in this start."""
        record.runs, record.out_of_time = 0, False

    def run(self, searcher: Callable[[], Searcher]) -> bool:
        try:
            # A search that was interrupted among its pairs has finished its rounds.
            return (bool(self._record.pairs) or self._rounds(searcher)) and self._confirmed()
        except _Spent:
            return True

    # Rounds

    def _rounds(self, make: Callable[[], Searcher]) -> bool:
        record, parts = self._record, self._shares
        quiet = 0
        per_round = -(-parts.candidates // parts.rounds)
        while (left := parts.candidates - len(record.trials)) > 0 and quiet < 2:
            if self._is_late():
                record.out_of_time = True
                break
            size = min(per_round, left)
            points = self._searcher.ask(size) if self._searcher is not None else None
            if points == []:
                break
            before, tried = record.best(), len(record.trials)
            todo = _Points(points, partial(self._first_points, make, size))
            gangs = min(parts.gangs, size if points is None else len(points))
            if not self._measured([self._round(todo) for _ in range(gangs)]):
                return False
            if len(record.trials) == tried:
                break
            quiet = 0 if _betters(record.best(), before) else quiet + 1
        return True

    def _first_points(self, make: Callable[[], Searcher], size: int, own: Trial) -> list[dict[str, Any]]:
        """The points of the first round. The searcher learns worths relative to the incumbent, so it is made once the incumbent has run."""
        self._searcher, self._reference = make(), self._search.worth(own)
        for known in self._record.trials:
            self._searcher.tell(known.point, _told(known, self._reference))
        return self._searcher.ask(size)

    def _round(self, todo: _Points) -> _Runs:
        """The part of one gang in a round: the incumbent, and points as long as some are left."""
        record, search = self._record, self._search
        own = yield from self._incumbent()
        record.own.append(own)
        search.keep(record)
        if own.tokens_per_s is None:  # this gang has no reference; the others go on
            return
        while (point := todo.next(own)) is not None:
            trial = self._beside((yield point), own)
            search.heard(trial)
            record.trials.append(trial)
            search.keep(record)
            assert self._searcher is not None
            self._searcher.tell(point, _told(trial, self._reference))
            if self._is_late():
                todo.end()

    # Pairs

    def _confirmed(self) -> bool:
        record, best, parts = self._record, self._record.leader(), self._shares
        if best is None:
            return True
        if not record.needed:
            usual = self._usual_s()
            fitting = self._left_s() / (2 * usual) if usual else math.inf
            record.needed = int(min(parts.pairs, parts.gangs * math.floor(min(fitting, parts.pairs))))
            record.out_of_time = record.out_of_time or record.needed < parts.pairs
        turns = _Turns(len(record.pairs), record.needed, is_over=min(record.ratios(), default=2.0) <= 1)
        return self._measured([self._pairs(best, turns) for _ in range(parts.gangs)])

    def _pairs(self, best: Trial, turns: _Turns) -> _Runs:
        """The pairs of one gang. One lost pair is enough to stop: all of them must be won."""
        record, search = self._record, self._search
        while (turn := turns.next()) is not None:
            if turn % 2 == 0:
                own = yield from self._incumbent()
                if own.tokens_per_s is None:  # it failed twice: there is no reference any more
                    turns.is_over = True
                    return
                theirs = self._beside((yield best.point), own)
                search.heard(theirs)
            else:
                theirs = yield best.point
                search.heard(theirs)
                own = yield from self._incumbent()
                if own.tokens_per_s is None:
                    turns.is_over = True
                    return
                theirs = self._beside(theirs, own)
            record.pairs.append((own, theirs))
            search.keep(record)
            if theirs.ratio is None or theirs.ratio <= 1:  # without a ratio, it ran once and fails now: nothing is confirmed
                turns.is_over = True

    # Runs

    def _incumbent(self) -> Generator[Point, Trial, Trial]:
        """The incumbent. If it fails but has run before, it is run once more. Raises IncumbentFailed if it has never run."""
        trial = yield {}
        self._search.heard(trial)
        if trial.tokens_per_s is None:
            if self._shares.gangs == 1 and not self._has_run():
                raise IncumbentFailed(trial)
            trial = yield {}
            self._search.heard(trial)
            if trial.tokens_per_s is None and not self._has_run():  # nor has another gang meanwhile
                raise IncumbentFailed(trial)
        return trial

    def _has_run(self) -> bool:
        """Whether the incumbent has been measured, by any gang."""
        return any(own.tokens_per_s is not None for own in self._record.own)

    def _measured(self, gangs: Sequence[_Runs]) -> bool:
        """Measure what the gangs ask for, side by side. False after a request to stop.

        Raises _Spent if the budget has no run left, or too little time for one. Runs that have begun end before.
        """
        is_spent = is_stopped = False
        running = 0
        waiting: list[tuple[int, Trial | None]] = [(gang, None) for gang in range(len(gangs))]
        while True:
            for gang, result in waiting:
                try:
                    point = gangs[gang].send(result) if result is not None else next(gangs[gang])
                except StopIteration:
                    continue
                if is_spent or is_stopped:
                    continue
                if self._start(gang, point):
                    running += 1
                else:
                    is_spent = True
            if not running:
                break
            gang, trial = self._search.gangs.ended()
            running -= 1
            waiting = []
            if trial is not None:
                self._record.runs += 1
                waiting = [(gang, replace(trial, gang=gang + 1))]
            elif self._left_s() <= 0:
                self._record.out_of_time = is_spent = True
            else:
                is_stopped = True
        if is_spent and not is_stopped:
            raise _Spent
        return not is_stopped

    def _start(self, gang: int, point: Point) -> bool:
        """Start a run. False if the budget has no run left, or too little time for one."""
        search, record = self._search, self._record
        if self._runs >= search.trials:
            return False
        if self._left_s() < self._usual_s() or self._left_s() <= 0:
            record.out_of_time = True
            return False
        self._runs += 1
        record.numbers += 1
        search.keep(record)
        search.gangs.start(gang, dict(point), record.numbers, record.own[0].seconds if record.own else None)
        return True

    def _left_s(self) -> float:
        seconds = self._search.seconds
        return math.inf if seconds is None else seconds - (self._search.now() - self._began)

    def _usual_s(self) -> float:
        """Usual seconds of a run; 0 before the first."""
        runs = [*self._record.own, *self._record.trials, *(run for pair in self._record.pairs for run in pair)]
        return statistics.median(run.seconds for run in runs) if runs else 0.0

    def _is_late(self) -> bool:
        """Whether a further run would use time reserved for the pairs: their usual time, at most half of the total."""
        seconds, parts = self._search.seconds, self._shares
        turns = -(-parts.pairs // parts.gangs)
        return seconds is not None and self._left_s() - self._usual_s() < min(2 * turns * self._usual_s(), seconds / 2)

    def _beside(self, trial: Trial, own: Trial) -> Trial:
        return trial if trial.tokens_per_s is None else replace(trial, ratio=self._search.worth(trial) / self._search.worth(own))


@dataclass
class _Points:
    """The points of a round that no gang has taken. `first`: makes those of the first round, once a gang has measured the incumbent."""

    left: list[dict[str, Any]] | None
    first: Callable[[Trial], list[dict[str, Any]]]

    def next(self, own: Trial) -> dict[str, Any] | None:
        if self.left is None:
            self.left = self.first(own)
        return self.left.pop(0) if self.left else None

    def end(self) -> None:
        self.left = []


@dataclass
class _Turns:
    """Numbers of the pairs, from `begun` to `needed`, until one is lost (`is_over`)."""

    begun: int
    needed: int
    is_over: bool

    def next(self) -> int | None:
        if self.is_over or self.begun >= self.needed:
            return None
        self.begun += 1
        return self.begun - 1


def _told(trial: Trial, reference: float) -> float | None:
    """The value for the searcher: worth on a machine on which the incumbent is as fast as in the first round."""
    return None if trial.ratio is None else trial.ratio * reference


def _betters(best: Trial | None, before: Trial | None) -> bool:
    if best is None or best.ratio is None:
        return False
    return best.ratio > 1 + NO_GAIN if before is None or before.ratio is None else best.ratio > before.ratio * (1 + NO_GAIN)
