"""All measurements of a search, which an interrupted search continues from, and what they say about the settings that were varied."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tuneyard.tuning.space import Point


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Result of one short run. `tokens_per_s` over all ranks; None if it failed. `failure` is a FailureKind, or "Hang"."""

    number: int
    point: dict[str, Any]
    tokens_per_s: float | None = None
    spread: float = 0.0
    """Half the interquartile range of the steps, as a share of the median."""
    predicted: float | None = None
    """Tokens/s that were expected before the search; None without an expectation."""
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    ratio: float | None = None
    """Its worth over that of the incumbent of the same round and gang; None for a failed trial, and for the incumbent itself."""
    gang: int = 1
    """Number of the gang that ran it, from 1."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Record:
    """All measurements, in order."""

    own: list[Trial] = field(default_factory=list)
    """Runs of the incumbent, one per gang and round."""
    trials: list[Trial] = field(default_factory=list)
    pairs: list[tuple[Trial, Trial]] = field(default_factory=list)
    """The incumbent and the best of `trials`, both on one gang. Their order of execution alternates."""
    place: str = ""
    """Place of the measurements. Equal machines have equal texts; ratios of one place hardly apply to another."""
    numbers: int = 0
    """Number of runs that were started, including one that was interrupted. Each has its own number."""
    needed: int = 0
    """Pairs that the best must win; 0 before the decision to confirm it."""
    runs: int = field(default=0, compare=False)
    """Runs that the last start of the search has measured."""
    out_of_time: bool = field(default=False, compare=False)
    """Whether that start left out a run, or cut one off, for lack of time."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """The record in `values`. Raises KeyError or TypeError for other values."""
        return cls(
            own=[Trial(**each) for each in values["own"]],
            trials=[Trial(**each) for each in values["trials"]],
            pairs=[(Trial(**one), Trial(**other)) for one, other in values["pairs"]],
            place=str(values["place"]),
            numbers=int(values["numbers"]),
            needed=int(values.get("needed", 0)),
        )

    def at(self, place: str, is_legal: Callable[[Point], bool]) -> Record:
        """The part of this record that counts at a place: nothing of another place, and of this one only legal points, with the pairs of
        the best.
        """
        if place != self.place:
            return Record(place=place, numbers=self.numbers)
        kept = replace(self, trials=[trial for trial in self.trials if is_legal(trial.point)])
        best = kept.best()
        kept.pairs = [pair for pair in self.pairs if best is not None and pair[1].point == best.point]
        kept.needed = self.needed if kept.pairs else 0
        return kept

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def best(self) -> Trial | None:
        """The trial with the highest ratio; None if all have failed."""
        return max((trial for trial in self.trials if trial.ratio is not None), key=lambda trial: trial.ratio or 0.0, default=None)

    def leader(self) -> Trial | None:
        """The best trial, if it is better than the incumbent of its round."""
        best = self.best()
        return best if best is not None and (best.ratio or 0.0) > 1 else None

    def ratios(self) -> list[float]:
        """For each pair, the worth of the best over that of the incumbent."""
        return [theirs.ratio for _, theirs in self.pairs if theirs.ratio is not None]

    def gain(self, pairs: int) -> float:
        """Gain of the best over the incumbent: the median of its pairs, minus 1. 0 unless all of `pairs` were won: a sign test that chance
        alone passes once in 2^pairs.
        """
        ratios = self.ratios()
        return statistics.median(ratios) - 1 if ratios and len(ratios) >= pairs > 0 and min(ratios) > 1 else 0.0


@dataclass(frozen=True)
class Effect:
    """Effect of a value of a setting: the geometric mean of the ratios of all trials with it. `trials`: number that ran, and failed."""

    setting: str
    value: Any
    ratio: float | None
    trials: int
    failed: int


def effects(trials: Sequence[Trial]) -> list[Effect]:
    """Effects of all values of the settings that were varied, as an overview. Correlated settings are not separated: trials are few, and
    chosen for their speed.
    """
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
