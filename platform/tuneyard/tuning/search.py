"""A search by measurement: rounds of trials beside the incumbent, then pairs that confirm or refute the winner.

Machines are noisy and drift. So the incumbent (the settings of the file) runs again in each round, what a trial measures counts relative
to the incumbent of its round, and the winner is whoever is confirmed in pairs, not whoever was measured once. All that is known is a
`Record`, kept after each measurement: a search that was ended goes on from it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tuneyard.tuning.searcher import Searcher
from tuneyard.tuning.space import Point

NO_GAIN = 0.01
"""A round that betters the best by less is one without gain; after two of them the search ends."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of one short run. `tokens_per_s` over all ranks, None where it failed; `failure` is a FailureKind, or "Hang"."""

    number: int
    point: dict[str, Any]
    tokens_per_s: float | None = None
    spread: float = 0.0
    """Half the distance between the quartiles of the steps, as a share of the median."""
    predicted: float | None = None
    """Tokens/s that were expected before the search; None where nothing was."""
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    ratio: float | None = None
    """Its worth over that of the incumbent of the same round; None where it failed, and for the incumbent itself."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Record:
    """All that was measured, in the order in which it was."""

    own: list[Trial] = field(default_factory=list)
    """Of the incumbent, one for each round."""
    trials: list[Trial] = field(default_factory=list)
    pairs: list[tuple[Trial, Trial]] = field(default_factory=list)
    """The incumbent and the best of `trials`; who ran first changes from pair to pair."""
    place: str = ""
    """Where it was measured, in words that are equal where machines are; ratios of one place say little of another."""
    numbers: int = 0
    """How many runs were begun; each has a number of its own, also the one during which the search was ended."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Raises KeyError or TypeError where it is something else."""
        return cls(
            own=[Trial(**each) for each in values["own"]],
            trials=[Trial(**each) for each in values["trials"]],
            pairs=[(Trial(**one), Trial(**other)) for one, other in values["pairs"]],
            place=str(values["place"]),
            numbers=int(values["numbers"]),
        )

    def at(self, place: str, is_legal: Callable[[Point], bool]) -> Record:
        """What of this counts at a place: nothing of another one, and of this one only legal points, with the pairs of the best of them."""
        if place != self.place:
            return Record(place=place, numbers=self.numbers)
        kept = replace(self, trials=[trial for trial in self.trials if is_legal(trial.point)])
        best = kept.best()
        kept.pairs = [pair for pair in self.pairs if best is not None and pair[1].point == best.point]
        return kept

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def best(self) -> Trial | None:
        """The trial with the highest ratio; None where all have failed."""
        return max((trial for trial in self.trials if trial.ratio is not None), key=lambda trial: trial.ratio or 0.0, default=None)

    def ratios(self) -> list[float]:
        """Of the pairs, for the best: its worth over the incumbent's."""
        return [theirs.ratio for _, theirs in self.pairs if theirs.ratio is not None]

    def gain(self, pairs: int) -> float:
        """What the best gains over the incumbent: the median of its pairs, less 1. 0 unless all of `pairs` were won: a sign test that
        chance alone passes once in 2^pairs."""
        ratios = self.ratios()
        return statistics.median(ratios) - 1 if len(ratios) >= pairs and min(ratios) > 1 else 0.0


class IncumbentFailed(Exception):
    """Nothing can be compared with settings that do not run."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.message or trial.failure)
        self.trial = trial


Measure = Callable[[Mapping[str, Any], int, float | None], Trial | None]
"""Runs a point (the empty one: the incumbent) under a number, beside an incumbent that took so many seconds (None: not known yet).
None where it was asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """`worth`: of a trial that ran, what is to be large (tokens/s, or tokens/s/GPU). `keep` is called whenever the record has changed,
    `heard` of each measurement, with its ratio where it has one by then.

    `pairs`: in how many the winner is confirmed beside the incumbent; `seconds`: what all may take, None: as long as it takes; `now`: a
    clock in seconds.
    """

    trials: int
    rounds: int
    pairs: int
    seconds: float | None
    worth: Callable[[Trial], float]
    measure: Measure
    heard: Callable[[Trial], None]
    keep: Callable[[Record], None]
    now: Callable[[], float]

    def run(self, record: Record, searcher: Callable[[], Searcher]) -> bool:
        """Search and confirm, going on from `record`, and write into it. False where it was asked to stop before the end.

        Raises IncumbentFailed.
        """
        began = self.now()
        # A search that was ended among its pairs has searched enough.
        return (bool(record.pairs) or self._rounds(record, searcher, began)) and self._confirmed(record)

    def _rounds(self, record: Record, make: Callable[[], Searcher], began: float) -> bool:
        searcher: Searcher | None = None
        reference, quiet = 0.0, 0
        per_round = -(-self.trials // self.rounds)
        while (left := self.trials - len(record.trials)) > 0 and quiet < 2 and not self._is_late(began):
            own = self._incumbent(record)
            if own is None:
                return False
            record.own.append(own)
            self.keep(record)
            if searcher is None:
                searcher, reference = make(), self.worth(own)
                for known in record.trials:
                    searcher.tell(known.point, _told(known, reference))
            before = record.best()
            asked = searcher.ask(min(per_round, left))
            if not asked:
                break
            for point in asked:
                trial = self._one(record, point, own)
                if trial is None:
                    return False
                record.trials.append(trial)
                self.keep(record)
                searcher.tell(point, _told(trial, reference))
                if self._is_late(began):
                    break
            quiet = 0 if _betters(record.best(), before) else quiet + 1
        return True

    def _is_late(self, began: float) -> bool:
        """Whether what is left of the time is the pairs'."""
        share = 2 * self.pairs / (2 * self.pairs + self.trials + self.rounds)
        return self.seconds is not None and self.now() - began > (1 - share) * self.seconds

    def _confirmed(self, record: Record) -> bool:
        best = record.best()
        while best is not None and len(record.pairs) < self.pairs:
            if len(record.pairs) % 2 == 0:
                own = self._incumbent(record)
                theirs = self._one(record, best.point, own) if own is not None else None
            else:
                theirs = self._one(record, best.point, None)
                own = self._incumbent(record) if theirs is not None else None
            if own is None or theirs is None:
                return False
            record.pairs.append((own, self._beside(theirs, own)))
            self.keep(record)
            if theirs.tokens_per_s is None:  # it ran once, and does not any more: nothing is confirmed
                break
        return True

    def _incumbent(self, record: Record) -> Trial | None:
        trial = self._one(record, {}, None)
        if trial is not None and trial.tokens_per_s is None:
            raise IncumbentFailed(trial)
        return trial

    def _one(self, record: Record, point: Point, own: Trial | None) -> Trial | None:
        record.numbers += 1
        self.keep(record)
        first = record.own[0].seconds if record.own else None
        trial = self.measure(dict(point), record.numbers, first)
        if trial is None:
            return None
        found = trial if own is None else self._beside(trial, own)
        self.heard(found)
        return found

    def _beside(self, trial: Trial, own: Trial) -> Trial:
        return trial if trial.tokens_per_s is None else replace(trial, ratio=self.worth(trial) / self.worth(own))


def _told(trial: Trial, reference: float) -> float | None:
    """What the searcher is told: worth as on a machine that runs the incumbent as fast as in the first round."""
    return None if trial.ratio is None else trial.ratio * reference


def _betters(best: Trial | None, before: Trial | None) -> bool:
    if best is None or best.ratio is None:
        return False
    return best.ratio > 1 + NO_GAIN if before is None or before.ratio is None else best.ratio > before.ratio * (1 + NO_GAIN)


@dataclass(frozen=True)
class Effect:
    """What a value of a setting did: the geometric mean of the ratios of all trials that had it. `trials`: how many ran, and failed."""

    setting: str
    value: Any
    ratio: float | None
    trials: int
    failed: int


def effects(trials: Sequence[Trial]) -> list[Effect]:
    """Of all values of those settings that were varied; who wins, and by what, at a glance. Settings that hang together are not told
    apart: trials are few, and chosen for their speed."""
    found: list[Effect] = []
    for setting in dict.fromkeys(name for trial in trials for name in trial.point):
        by_value: dict[Any, list[Trial]] = {}
        for trial in trials:
            by_value.setdefault(trial.point.get(setting), []).append(trial)
        if len(by_value) > 1:
            found += [_effect(setting, value, having) for value, having in sorted(by_value.items(), key=lambda each: str(each[0]))]
    return found


def _effect(setting: str, value: Any, trials: Sequence[Trial]) -> Effect:
    ratios = [trial.ratio for trial in trials if trial.ratio]
    return Effect(setting, value, statistics.geometric_mean(ratios) if ratios else None, len(trials), len(trials) - len(ratios))
