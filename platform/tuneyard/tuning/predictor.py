"""Speed, failure and peak memory of a future run, learned from past runs.

Speed is the roofline, calibrated by history (the planner's estimate without history), times the residual from trees and similar runs. The
estimate of failure starts from the planner's memory over the device's memory, that of memory from the planner's terms. History corrects
both in the same way. Far from all history the prediction is the planner's, and `supported` is false. On a SKU without runs it is the
calibrated roofline alone, and on more GPUs than history has, similar runs do not count (docs/benchmarks/predictor.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from tuneyard.tuning.analytic import calibrated, failure_logit, log_memory, log_seconds, sigmoid
from tuneyard.tuning.boosting import Bag, fit_bag
from tuneyard.tuning.features import describe
from tuneyard.tuning.kernel import Kernel, distances, places
from tuneyard.tuning.residual import Residual
from tuneyard.tuning.roofline import Roofline
from tuneyard.tuning.rows import clean, failed, kept

if TYPE_CHECKING:
    import pandas as pd

REACH = 2.5
"""Distance (see `kernel`) to the nearest run of history beyond which history is not used."""
REBOOST = 0.1
"""Growth of history after which trees are grown again; until then, new rows are used through a kernel."""
UNKNOWN = "size, GPU, sequence length or batch is not given, or not known to the catalog"
FAR = "no run like it in history: the planner's estimate"
NEW_SKU = "no run on this SKU in history: the roofline, as history has calibrated it on others"
_NEW_SKU_SIGMA = 0.5
"""Least standard deviation of log speed on a SKU without runs (docs/benchmarks/predictor.md)."""


@dataclass(frozen=True)
class Forecast:
    """The prediction of the trees for rows, before later rows are used. All shapes (usable rows,)."""

    points: np.ndarray
    """Places (see `kernel`). Shape (usable rows, dimensions)."""
    usable: np.ndarray
    """Whether each row is usable. Shape (rows,)."""
    step_tokens: np.ndarray
    new_sku: np.ndarray
    """Whether no timed run of history was on the row's SKU."""
    log_seconds: np.ndarray
    planned_log_seconds: np.ndarray
    sigma: np.ndarray
    fails: np.ndarray
    planned_fails: np.ndarray
    log_memory: np.ndarray
    planned_log_memory: np.ndarray

    def only(self, row: int) -> Forecast:
        """The forecast of one row."""
        at = int(self.usable[:row].sum())
        kept = slice(at, at + int(self.usable[row]))
        parts = {name: value[kept] for name, value in vars(self).items() if name != "usable"}
        return Forecast(usable=self.usable[row : row + 1], **parts)


@dataclass(frozen=True)
class Predictor:
    """Made by `fit`; immutable. `updated` makes another."""

    grown_from: pd.DataFrame
    """Rows of history from which the trees were grown."""
    late: pd.DataFrame
    """Rows of history that came after the trees."""
    seed: int
    rooflines: dict[str, Roofline]
    """By software; "" for all others."""
    speed: Residual
    memory: Residual
    failure: Bag
    seen: np.ndarray
    """Places of all usable rows. Shape (rows, dimensions)."""
    timed_rows: int
    """Number of rows with a speed from which the trees were grown."""
    late_speed: Kernel
    """Deviation of late rows' log seconds from the prediction."""
    late_failure: Kernel

    @classmethod
    def fit(cls, rows: pd.DataFrame, *, seed: int = 0) -> Self:
        """Learn from any number of rows with the columns of training_runs.csv, including none.

        Rows without the inputs of a prediction (size, GPU, batch) are skipped. Raises BadInput for missing columns.
        """
        history = kept(rows)
        described = describe(history)
        usable = described.usable
        described, outcome = described.at(usable), history[usable]
        points = places(described)
        speed, measured = _positive(outcome, "tokens_per_sec_per_gpu")
        timed = described.at(measured)
        seconds = np.log(timed.step_tokens / speed[measured])
        rooflines = calibrated(timed, seconds)
        left = seconds - log_seconds(timed, rooflines, len(seconds))
        peak, weighed = _positive(outcome, "peak_mem_gb")
        heavy = described.at(weighed)
        above = np.log(peak[weighed]) - log_memory(heavy)
        verdict = failed(outcome)
        judged = np.isfinite(verdict)
        court, offset = described.at(judged), failure_logit(described)[judged]
        failure, _ = fit_bag(court.features, verdict[judged], seed=seed + 4, objective="binary", offset=offset, members=3, trees=150)
        return cls(
            grown_from=history,
            late=history[:0],
            seed=seed,
            rooflines=rooflines,
            speed=Residual.fit(timed, points[measured], left, seed=seed, noise=0.4),
            memory=Residual.fit(heavy, points[weighed], above, seed=seed + 2, noise=0.25),
            failure=failure,
            seen=points,
            timed_rows=len(seconds),
            late_speed=Kernel.empty(points.shape[1], variance=0.25, noise=0.05, shared=0.1),
            late_failure=Kernel.empty(points.shape[1], variance=0.25, noise=0.05, shared=0.02),
        )

    def updated(self, rows: pd.DataFrame) -> Predictor:
        """A predictor with further rows. A few rows are cheap: they correct predictions around them. Trees are grown again once history is
        a tenth longer.

        Raises BadInput for missing columns.
        """
        return self.learned(self.forecast(rows), kept(rows))

    def learned(self, forecast: Forecast, rows: pd.DataFrame) -> Predictor:
        """Like `updated`, for rows with an existing forecast of this predictor's trees."""
        import pandas as pd

        late = pd.concat([self.late, rows], ignore_index=True) if len(self.late) else rows
        if len(late) > max(REBOOST * len(self.grown_from), 10):
            return Predictor.fit(pd.concat([self.grown_from, late], ignore_index=True) if len(self.grown_from) else late, seed=self.seed)
        outcome = rows[forecast.usable]
        speed, measured = _positive(outcome, "tokens_per_sec_per_gpu")
        off = np.log(forecast.step_tokens[measured] / speed[measured]) - forecast.log_seconds[measured]
        verdict = failed(outcome)
        judged = np.isfinite(verdict)
        return replace(
            self,
            late=late,
            seen=np.vstack([self.seen, forecast.points]),
            late_speed=self.late_speed.longer(forecast.points[measured], off),
            late_failure=self.late_failure.longer(forecast.points[judged], verdict[judged] - forecast.fails[judged]),
        )

    def predict(self, rows: pd.DataFrame) -> pd.DataFrame:
        """For each row: `tokens_per_sec_per_gpu` with its `_low` and `_high` (one standard deviation), `sigma_log`, `fail_probability`,
        `peak_mem_gb`, `supported`, and `why_not` if it is false. NaN if even the planner has no estimate.

        Raises BadInput for missing columns.
        """
        answer = self.answers(self.forecast(rows))
        answer.index = rows.index
        return answer

    def forecast(self, rows: pd.DataFrame) -> Forecast:
        """The part of a prediction that is constant until trees are grown again. Raises BadInput for missing columns."""
        described = describe(rows)
        usable = described.usable
        found = described.at(usable)
        points = places(found)
        base, logit, memory = log_seconds(found, self.rooflines, self.timed_rows), failure_logit(found), log_memory(found)
        largest = np.array([self._largest.get(sku, 0.0) for sku in found.known["sku"]])
        new_sku = largest == 0
        # Physics carries over to another SKU, what trees have learned does not. To larger runs trees carry over, similar runs do not.
        left = np.where(new_sku, 0.0, self.speed.mean(found, points, alike=found.known.gpus.to_numpy(float) <= largest))
        return Forecast(
            points=points,
            usable=usable,
            step_tokens=found.step_tokens,
            new_sku=new_sku,
            log_seconds=base + left,
            planned_log_seconds=log_seconds(found, {"": Roofline.prior()}, 0),
            sigma=np.maximum(self.speed.sigma(found, points), np.where(new_sku, _NEW_SKU_SIGMA, 0.0)),
            fails=sigmoid(logit + self.failure.members(found.features).mean(0)),
            planned_fails=sigmoid(logit),
            log_memory=memory + self.memory.mean(found, points),
            planned_log_memory=memory,
        )

    @cached_property
    def _largest(self) -> dict[str, float]:
        """The largest number of GPUs of the timed runs in history, by SKU."""
        _, measured = _positive(self.grown_from, "tokens_per_sec_per_gpu")
        known = clean(self.grown_from[measured])
        return {str(sku): float(gpus) for sku, gpus in known.groupby("sku").gpus.max().items() if sku}

    def answers(self, forecast: Forecast) -> pd.DataFrame:
        """The columns of `predict`, with late rows taken into account."""
        import pandas as pd

        points = forecast.points
        near = distances(points, self.seen).min(1) <= REACH if len(self.seen) else np.zeros(len(points), dtype=bool)
        seconds = np.where(near, forecast.log_seconds + self.late_speed.mean(points), forecast.planned_log_seconds)
        # Half of a run's uncertainty comes from its place: that part vanishes once a neighbour is measured.
        unheard = self.late_speed.spread(points) / np.sqrt(self.late_speed.variance + self.late_speed.shared)
        columns = {
            "tokens_per_sec_per_gpu": forecast.step_tokens * np.exp(-seconds),
            "fail_probability": np.where(
                near, np.clip(forecast.fails + self.late_failure.mean(points), 0.001, 0.999), forecast.planned_fails
            ),
            "peak_mem_gb": np.exp(np.where(near, forecast.log_memory, forecast.planned_log_memory)),
            "sigma_log": np.where(near, forecast.sigma * (0.5 + 0.5 * unheard), 1.0),
        }
        answer = pd.DataFrame(np.nan, index=range(len(forecast.usable)), columns=list(columns))
        answer.loc[forecast.usable] = np.stack(list(columns.values()), axis=1)
        answer["tokens_per_sec_per_gpu_low"] = answer.tokens_per_sec_per_gpu * np.exp(-answer.sigma_log)
        answer["tokens_per_sec_per_gpu_high"] = answer.tokens_per_sec_per_gpu * np.exp(answer.sigma_log)
        why = np.full(len(forecast.usable), UNKNOWN, dtype=object)
        why[forecast.usable] = np.where(near, np.where(forecast.new_sku, NEW_SKU, ""), FAR)
        answer["supported"] = why == ""
        answer["why_not"] = why
        return answer


def _positive(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, and a mask of its positive values."""
    import pandas as pd

    values = pd.to_numeric(rows[column], errors="coerce").to_numpy(float)
    return values, np.isfinite(values) & (values > 0)
