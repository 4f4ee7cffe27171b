"""Choice of the next points to try: in each round, a policy is rewarded by the predictor, which learns from the measurements in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tuneyard.tuning.policy import PolicySettings, reinforce
from tuneyard.tuning.rows import kept
from tuneyard.tuning.space import Key, Point, Space

if TYPE_CHECKING:
    import pandas as pd

    from tuneyard.tuning.predictor import Predictor


class Searcher(Protocol):
    """Proposes points, and is told their results. It never proposes a point twice, and proposes fewer than `k` if few are left."""

    def ask(self, k: int = 1) -> list[dict[str, Any]]:
        """Up to `k` points to try, the most promising first."""

    def tell(self, point: Point, measured: float | None) -> None:
        """The worth of a point (larger is better: a speed), or None if it failed, hung or ran out of memory."""


@dataclass(frozen=True)
class Outlook:
    """Expectations of points. All shapes (points,)."""

    log_speed: np.ndarray
    sigma: np.ndarray
    """Standard deviation of log speed."""
    fails: np.ndarray
    """Probability."""


class Expectation(Protocol):
    """A predictor, as the searcher uses it."""

    def outlook(self) -> Outlook:
        """Expectations of all points, in the order in which they were given."""

    def learn(self, point: Point, measured: float | None) -> None:
        """The worth of a point, or None if it failed."""


class PredictorExpectation:
    """A Predictor over a fixed list of points. `row_of`: the row (columns of training_runs.csv) of a run of a point. `counted`: factor from
    its tokens/s/GPU to its worth, such as its workers if the tokens of all of them count.

    Trees evaluate the points once. Measurements correct the result, until there are enough to grow the trees again.
    """

    def __init__(
        self,
        predictor: Predictor,
        points: Sequence[Point],
        row_of: Callable[[Point], dict[str, Any]],
        counted: Callable[[Point], float] = lambda _: 1.0,
    ) -> None:
        import pandas as pd

        self.predictor = predictor
        self._rows = pd.DataFrame([row_of(point) for point in points])
        self._counted = np.array([counted(point) for point in points], dtype=float)
        self._position = {_frozen(point): at for at, point in enumerate(points)}
        self._forecast = predictor.forecast(self._rows)

    def outlook(self) -> Outlook:
        found = self.predictor.answers(self._forecast)
        speed = np.log(found.tokens_per_sec_per_gpu.to_numpy(float) * self._counted)
        # Points without a prediction are rated as slow as the slowest, with a high uncertainty.
        lowest = float(np.nanmin(speed)) if np.isfinite(speed).any() else 0.0
        return Outlook(
            np.where(np.isfinite(speed), speed, lowest),
            found.sigma_log.fillna(1.0).to_numpy(float),
            found.fail_probability.fillna(0.5).to_numpy(float),
        )

    def learn(self, point: Point, measured: float | None) -> None:
        at = self._position[_frozen(point)]
        before = self.predictor.grown_from
        row = _outcome(self._rows.iloc[[at]], None if measured is None else measured / self._counted[at])
        self.predictor = self.predictor.learned(self._forecast.only(at), row)
        if self.predictor.grown_from is not before:
            self._forecast = self.predictor.forecast(self._rows)


def _frozen(point: Point) -> frozenset[tuple[str, Any]]:
    return frozenset(point.items())


def _outcome(row: pd.DataFrame, measured: float | None) -> pd.DataFrame:
    speed = np.nan if measured is None else measured
    told = row.assign(tokens_per_sec_per_gpu=speed, status="failed" if measured is None else "ok", peak_mem_gb=np.nan)
    return kept(told)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    policies: int = 3
    """Policies with different starts, whose points are pooled."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    exploration: float = 0.3
    """Standard deviations of log speed that are added to a point's worth (upper confidence bound; Auer 2002), from the second trial on."""
    likeness: float = 0.15
    """Share of its worth that a candidate loses for being a copy of one chosen in the same round."""


class PolicySearcher:
    """After CubicML (Meta 2024): REINFORCE over the space, rewarded by the predictor. The best and most diverse points become trials.

    The worth of a point is (1 - probability of failure) x exp(log speed + exploration x sigma), over the best found so far.
    """

    def __init__(
        self,
        space: Space,
        expectation: Callable[[Sequence[Point]], Expectation],
        rng: np.random.Generator,
        settings: SearchSettings | None = None,
    ) -> None:
        """`expectation` is made for the list of points of the search. Raises BadInput if no point is legal."""
        self._space, self._rng = space, rng
        self._settings = settings or SearchSettings()
        self._keys = space.legal_keys(rng)
        self._expectation = expectation([space.point(tuple(int(i) for i in key)) for key in self._keys])
        self._sizes = tuple(len(values) for values in space.settings.values())
        self._open = np.ones(len(self._keys), dtype=bool)
        self._position: dict[Key, int] = {tuple(int(i) for i in key): at for at, key in enumerate(self._keys)}
        self._told = 0
        self._outlook: Outlook | None = None

    def ask(self, k: int = 1) -> list[dict[str, Any]]:
        free = np.flatnonzero(self._open)
        if not len(free) or k < 1:
            return []
        keys = self._keys[free]
        worth = self._worth()[free]
        drawn: dict[int, float] = {}
        for _ in range(self._settings.policies):
            drawn |= reinforce(keys, self._sizes, lambda at: worth[at], self._rng, self._settings.policy)
        chosen = self._diverse(keys, drawn, k)
        self._open[free[chosen]] = False
        return [self._space.point(tuple(int(i) for i in keys[at])) for at in chosen]

    def tell(self, point: Point, measured: float | None) -> None:
        at = self._position.get(self._space.key(point))
        if at is not None:
            self._open[at] = False
        self._expectation.learn(point, measured)
        self._told += 1
        self._outlook = None

    def _worth(self) -> np.ndarray:
        """Worth of all legal points, 0 to 1."""
        if self._outlook is None:
            self._outlook = self._expectation.outlook()
        found = self._outlook
        bonus = self._settings.exploration if self._told else 0.0
        hoped = found.log_speed + bonus * found.sigma
        return np.asarray((1 - found.fails) * np.exp(hoped - hoped[self._open].max()))

    def _diverse(self, keys: np.ndarray, drawn: dict[int, float], k: int) -> list[int]:
        """Positions of the points with the highest worth, reduced by their similarity to those chosen before."""
        at = np.array(sorted(drawn), dtype=int)
        worth = np.array([drawn[i] for i in at.tolist()])
        chosen: list[int] = []
        alike = np.zeros(len(at))
        for _ in range(min(k, len(at))):
            score = worth * (1 - self._settings.likeness * alike)
            score[[i in chosen for i in at.tolist()]] = -1.0
            best = int(score.argmax())
            chosen.append(int(at[best]))
            alike = np.maximum(alike, (keys[at] == keys[at[best]]).mean(1))
        return chosen
