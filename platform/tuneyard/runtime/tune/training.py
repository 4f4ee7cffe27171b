"""A train or rank task in a search: its choices, what history or the planner expects of them, and short attempts of ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuneyard.api import Task
from tuneyard.api.tuned_settings import DATA_WORKERS, searched_as
from tuneyard.planning import past_rates
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.task_context import TaskContext
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.train.past import PastPrograms, past_programs
from tuneyard.runtime.tune.choices import Choices, Plans
from tuneyard.runtime.tune.past import past_attempts
from tuneyard.runtime.tune.trials import Listener, in_its_own_order, run_trial, short
from tuneyard.runtime.tune.tuned import PLANNED
from tuneyard.tracking import Warned
from tuneyard.tuning import Expectation, PlannedExpectation, Point, Predictor, PredictorExpectation, Trial, history_frame

_SHOWN = ("workers", "zero", "micro_batch", "recompute", "attention")


class TunedTraining:
    """See `Tuned`. Predictors know shapes of language models only. Of a ranker, the plan is expected, and of a program what its runs and
    trials in history took with the same layout.
    """

    def __init__(self, search: Task, tuned: Task, context: TaskContext, plan: Plans, settings: Sequence[TrainSetting]) -> None:
        """`settings`: one for each gang. Raises BadInput if the task cannot run here, or if a listed setting cannot matter."""
        assert search.tune is not None
        self._search, self._context, self._settings = search, context, settings
        self._tuned, self._kind = tuned, searched_as(tuned)
        self._in_rows = self._kind != "train"
        self.unit = "rows" if self._in_rows else "tokens"
        self.guess = "nothing is expected of a program" if self._kind == "program" else PLANNED
        past = past_attempts(self._without_history)
        self._choices = Choices(short(tuned, search.tune.steps_per_trial), context.machine, plan, past_rates(past))
        self.space = self._choices.space(search.tune.space)
        self._predictor = Predictor.fit(history_frame(past))
        self._programs = past_programs(self._without_history) if self._kind == "program" else PastPrograms()
        self.known = 0 if self._in_rows else self._predictor.timed_rows
        if self._kind == "program":
            self.known = self._programs.count(context.job, tuned)
        self._tried_network: set[int] = set()
        """Gangs whose network was checked."""

    def why_not(self, point: Point) -> str:
        return self._choices.why_not(point)

    def devices(self, point: Point) -> int:
        return self._choices.workers(point)

    def plan(self) -> dict[str, Any]:
        found = self._choices.request({}).plan
        return {name: getattr(found, name) for name in _SHOWN}

    def row(self, point: Point) -> dict[str, Any] | None:
        return None if self._in_rows else self._choices.row(point)

    def predicted(self, point: Point) -> float | None:
        if self._in_rows:
            return self._rows_per_s(point)
        import pandas as pd

        rate = float(self._predictor.predict(pd.DataFrame([self._choices.row(point)])).tokens_per_sec_per_gpu.iloc[0])
        return rate * self._total(point) if math.isfinite(rate) else None

    def expectation(self, points: Sequence[Point], share: Callable[[Point], float]) -> Expectation:
        if self._in_rows:
            known = [rate / self.devices(point) for point in points if (rate := self._rows_per_s(point))]
            usual = statistics.median(known) if known else 1.0  # of a worker
            return PlannedExpectation(points, lambda point: (self._rows_per_s(point) or usual * self.devices(point)) * share(point))
        return PredictorExpectation(self._predictor, points, self._choices.row, lambda point: self._total(point) * share(point))

    def measure(self, gang: int, point: Mapping[str, Any], number: int, limit_s: float, should_stop: ShouldStop) -> Trial:
        name = self._search.name
        request = self._choices.request(point)
        if DATA_WORKERS in self.space.settings:
            request = replace(request, task=in_its_own_order(request.task, number))
        network = None if gang in self._tried_network else request.network
        self._tried_network.add(gang)
        return run_trial(
            number,
            point,
            replace(
                request,
                network=network,
                name=f"{name}-{number}",
                output=f"{self._context.output.task_uri(name)}/trials/{number}",
                scratch=str(self._context.scratch / f"{name}-{number}"),
                run=f"{request.run}-{number}",
            ),
            self._settings[gang],
            Listener(name, f"{name}/{number}", self._context.emit),
            self.row(point),
            limit_s=limit_s,
            should_stop=should_stop,
        )

    def _total(self, point: Point) -> float:
        """Factor from tokens/s/GPU, as predictors give it, to tokens/s: with the share of time that ranks wait for rows, and with settings
        that no row of history names, which predictors do not know."""
        return self._choices.workers(point) * self._choices.fed(point) * self._choices.unseen(point)

    def _rows_per_s(self, point: Point) -> float | None:
        """Rows/s of all workers: planned, or of a program measured before; None where neither is known."""
        if self._kind == "rank":
            return self._choices.planned(point)
        measured = self._programs.like(self._context.job, self._tuned, self._choices.request(point).plan)
        return measured.rows_per_s if measured is not None else None

    def _without_history(self, why: str) -> None:
        self._context.emit(Warned(task=self._search.name, message=f"searching without history: {why}"))
