"""Searchers without a predictor: random points, and a general optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuneyard.tuning.space import Key, Point, Space


class Listed:
    """Legal points in a fixed order. Measurements do not change it."""

    def __init__(self, space: Space, order: Sequence[Key]) -> None:
        self._space, self._left = space, list(order)

    def ask(self, k: int = 1) -> list[dict[str, Any]]:
        asked, self._left = self._left[: max(k, 0)], self._left[max(k, 0) :]
        return [self._space.point(key) for key in asked]

    def tell(self, point: Point, measured: float | None) -> None:  # noqa: ARG002 -- the order is fixed
        key = self._space.key(point)
        self._left = [other for other in self._left if other != key]


def keys_of(space: Space, rng: np.random.Generator) -> list[Key]:
    return [tuple(int(i) for i in key) for key in space.legal_keys(rng)]


class Random(Listed):
    """Legal points in random order."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        keys = keys_of(space, rng)
        super().__init__(space, [keys[i] for i in rng.permutation(len(keys))])


class Tpe:
    """Optuna's TPE (Bergstra et al. 2011) through ask and tell, with settings as categories. A failure is reported as slower than every
    measurement.

    TPE has no mask. Illegal or known proposals cost no trial. After `patience` such proposals in a row, the searcher takes the legal point
    that shares the most settings with the last one.
    """

    def __init__(self, space: Space, rng: np.random.Generator, *, patience: int = 8) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._rng, self._patience, self._optuna = space, rng, patience, optuna
        self._open = dict.fromkeys(keys_of(space, rng))
        sampler = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)), n_startup_trials=3, multivariate=False)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._kinds = {name: optuna.distributions.CategoricalDistribution(range(len(values))) for name, values in space.settings.items()}
        self._slowest = 0.0

    def ask(self, k: int = 1) -> list[dict[str, Any]]:
        return [self._space.point(self._next()) for _ in range(min(k, len(self._open)))]

    def tell(self, point: Point, measured: float | None) -> None:
        key = self._space.key(point)
        self._open.pop(key, None)
        value = self._slowest - 1 if measured is None else float(np.log(max(measured, 1e-9)))
        self._slowest = min(self._slowest, value)
        settings = dict(zip(self._kinds, key, strict=True))
        self._study.add_trial(self._optuna.trial.create_trial(params=settings, distributions=self._kinds, value=value))

    def _next(self) -> Key:
        key: Key = ()
        for _ in range(self._patience):
            trial = self._study.ask(self._kinds)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            key = tuple(trial.params[name] for name in self._kinds)
            if key in self._open:
                break
        if key not in self._open:
            left = list(self._open)
            shared = (np.array(left) == np.array(key)).sum(1) + self._rng.random(len(left)) / 2
            key = left[int(shared.argmax())]
        del self._open[key]
        return key
