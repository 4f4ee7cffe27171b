"""Correction of predicted engine times by past runs on the same kind of machine: a factor of each term.

A run is remembered with the seconds by term that were predicted for its real rows without any correction, and with what it took. The
factors f minimise

    sum rho((log sum_t f_t predicted_t - log measured) / 0.15) + sum_t (log f_t / 0.7)^2

over the latest runs, with rho the soft L1 loss: as `calibration_fit` does for training. Few runs move the factors little where they say
little, and a wrong run hardly moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import median

from tuneyard.planning.engines.dataset import DataSetTime
from tuneyard.planning.engines.speed import EngineTime

_TERMS = tuple(EngineTime.__dataclass_fields__)
_PRIOR, _NOISE = 0.7, 0.15
_LATEST = 50
_STEPS = (0.4, 0.2, 0.1, 0.05, 0.02)
ONES = EngineTime(**dict.fromkeys(_TERMS, 1.0))


@dataclass(frozen=True, kw_only=True)
class ScoreRun:
    """A finished run: predicted seconds without a correction, and measured ones. `ready_s`: until the first engine was ready."""

    predicted: EngineTime
    predicted_ready_s: float
    generation_s: float
    ready_s: float


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Factors of predicted seconds, and the number of runs that they come from."""

    terms: EngineTime = ONES
    ready: float = 1.0
    runs: int = 0

    def applied(self, time: DataSetTime) -> DataSetTime:
        """The time with corrected start and load. The terms of the engine are corrected already, in `Engine`."""
        return replace(time, start_s=time.start_s * self.ready, load_s=time.load_s * self.ready)


UNCORRECTED = Correction()


def corrected_by(runs: Sequence[ScoreRun]) -> Correction:
    """The correction by past runs, oldest first. Runs without time are left out."""
    used = [run for run in runs if run.generation_s > 0 and run.predicted.total_s > 0][-_LATEST:]
    if not used:
        return UNCORRECTED
    logs = dict.fromkeys(_TERMS, 0.0)
    for step in _STEPS:
        while _improve(logs, used, step):
            pass
    ready = [run.ready_s / run.predicted_ready_s for run in used if run.ready_s > 0 and run.predicted_ready_s > 0]
    terms = EngineTime(**{name: exp(value) for name, value in logs.items()})
    return Correction(terms=terms, ready=median(ready) if ready else 1.0, runs=len(used))


def _improve(logs: dict[str, float], runs: Sequence[ScoreRun], step: float) -> bool:
    """Move one factor by `step` where that lowers the loss most. False: no move lowers it."""
    moves = [{**logs, name: logs[name] + way * step} for name in _TERMS for way in (1, -1)]
    best = min(moves, key=lambda each: _loss(each, runs))
    if _loss(best, runs) >= _loss(logs, runs) - 1e-9:
        return False
    logs.update(best)
    return True


def _loss(logs: dict[str, float], runs: Sequence[ScoreRun]) -> float:
    factors = {name: exp(value) for name, value in logs.items()}
    loss = sum((value / _PRIOR) ** 2 for value in logs.values())
    for run in runs:
        seconds = sum(factor * getattr(run.predicted, name) for name, factor in factors.items())
        loss += 2 * (sqrt(1 + ((log(seconds / run.generation_s)) / _NOISE) ** 2) - 1)
    return loss
