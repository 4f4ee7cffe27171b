"""Runs tune tasks: a `tuning.Search` on this machine, where each measurement is a short attempt of the tuned task.

trials.json holds all measurements after each of them, so that a stopped or killed search resumes with --resume.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tuneyard.api import BadInput, FailureKind, JobFailed, Task
from tuneyard.api.tuned_settings import DATA_WORKERS
from tuneyard.planning import Plan, past_rates
from tuneyard.runtime.task_context import TaskContext
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.tune.choices import Choices, Plans
from tuneyard.runtime.tune.past import past_attempts
from tuneyard.runtime.tune.trials import Listener, in_its_own_order, run_trial, short
from tuneyard.storage import NotFound, open_store
from tuneyard.tracking import Stage, Tried, Warned
from tuneyard.tuning import (
    IncumbentFailed,
    PlannedExpectation,
    Point,
    PolicySearcher,
    Predictor,
    PredictorExpectation,
    Random,
    Record,
    Search,
    Searcher,
    Tpe,
    Trial,
    effects,
    history_frame,
    shares,
)

TRIALS = "trials.json"
_LEAST_LIMIT_S = 180.0
_FIRST_LIMIT_S = 3600.0
_SLOWEST = 4.0
"""A trial is ended after this many times the duration of the file's own settings."""


def run_tune(task: Task, context: TaskContext, plan: Plans, setting: TrainSetting, *, seed: int = 0) -> dict[str, Any]:
    """Run a search. Returns the winner, its gain over the file's settings, and all measurements. `status` is stopped if a stop was asked
    for.

    Raises BadInput if there is nothing to search, and JobFailed if the settings of the file do not run.
    """
    began = time.monotonic()  # loading and starting count towards the budget
    tuning = _Tuning(task, context, plan, setting, np.random.default_rng(seed), began)
    context.machines.use_ray()  # only once it is known that there is something to search
    return tuning.run()


class _Tuning:
    """One tune task."""

    def __init__(
        self, task: Task, context: TaskContext, plan: Plans, setting: TrainSetting, rng: np.random.Generator, began: float
    ) -> None:
        assert task.tune is not None
        self._task, self._context, self._setting, self._rng = task, context, setting, rng
        self._tune = task.tune
        tuned = context.job.spec.task(task.tune.task)
        if tuned.training is None:
            raise BadInput(f"task {task.name} tunes {tuned.name}, which is a {tuned.kind} task", "name a train or rank task")
        self._is_ranker = tuned.rank is not None
        past = past_attempts(self._without_history)
        self._choices = Choices(short(tuned, task.tune.steps_per_trial), context.machine, plan, past_rates(past))
        self._space = self._choices.space(task.tune.space)
        self._space.check(rng)
        self._report_unused(task.tune.space)
        self._store = open_store(context.output.task_uri(task.name))
        self._predictor = Predictor.fit(history_frame(past))
        minutes = task.tune.budget.minutes
        self._ends = began + 60 * minutes if minutes is not None else math.inf
        self._tried_network = False

    def _report_unused(self, listed: Mapping[str, Any]) -> None:
        """Warn of each listed value that cannot work here with any of the others."""
        for path, value in self._space.unused(self._rng) if listed else ():
            why = self._choices.why_not({path: value}) or "no combination with it works, or it is what the file has"
            self._context.emit(Warned(task=self._task.name, message=f"{path} {value} is not tried: {why}"))

    def run(self) -> dict[str, Any]:
        self._store.delete_prefix("trials/")  # leftovers of a trial during which the search was killed
        record = self._remembered()
        known = 0 if self._is_ranker else self._predictor.timed_rows
        self._context.emit(
            Stage(
                task=self._task.name,
                name=f"searching {self._space.size} combinations, "
                + (f"{known} timed runs in history" if known else "no history: by the planner's estimates")
                + (f", {len(record.trials)} trials measured before" if record.trials else "")
                + f"; {self._budgeted()}",
            )
        )
        try:
            ended = self._search().run(record, self._searcher)
        except IncumbentFailed as error:
            raise JobFailed(
                f"the settings of the file do not run, and nothing can be compared with them: {error}",
                f"make task {self._tune.task} run first",
                kind=FailureKind.USER_ERROR,
            ) from error
        if not record.own and not self._context.should_stop():
            raise JobFailed(
                f"the {self._tune.budget.minutes:g} minutes of the search were over before the settings of the file had run once",
                "give it more: --minutes, or budget.minutes in the file",
                kind=FailureKind.DEADLINE,
            )
        # A search whose budget of time has run out has ended; it was not asked to stop.
        return self._found(record, ended=ended or not self._context.should_stop())

    def _search(self) -> Search:
        budget = self._tune.budget
        return Search(
            trials=budget.trials,
            rounds=budget.rounds,
            pairs=budget.pairs,
            seconds=max(0.0, self._ends - time.monotonic()) if budget.minutes is not None else None,
            worth=self._worth,
            measure=self._measure,
            heard=self._tell,
            keep=lambda record: self._store.put(TRIALS, json.dumps(record.to_dict(), indent=1).encode()),
            now=time.monotonic,
        )

    def _found(self, record: Record, *, ended: bool) -> dict[str, Any]:
        """The entry of the search in the report."""
        best, gain = record.best(), record.gain(record.needed)
        return {
            "status": "succeeded" if ended else "stopped",
            "tuned": self._tune.task,
            "searcher": self._tune.searcher,
            "objective": self._tune.objective,
            "unit": self._unit,
            "best": best.point if best is not None and gain > 0 else {},
            "gain": gain,
            "tried_best": best.point if best is not None else {},
            "leads": record.leader() is not None,
            "ratios": record.ratios(),
            "effects": [asdict(effect) for effect in effects(record.trials)],
            "plan": _shown(self._choices.request({}).plan),
            **{name: value for name, value in record.to_dict().items() if name not in ("numbers", "place")},
        }

    @property
    def _unit(self) -> str:
        """The unit of a trial's speed, per second."""
        return "rows" if self._is_ranker else "tokens"

    def _counted(self, point: Point) -> float:
        """Factor from the speed per GPU to the worth of a point: 1 for the objective `cost`, else its number of workers."""
        return 1.0 if self._tune.objective == "cost" else float(self._choices.workers(point))

    def _worth(self, trial: Trial) -> float:
        return (trial.tokens_per_s or 0.0) / self._choices.workers(trial.point) * self._counted(trial.point)

    def _searcher(self) -> Searcher:
        if self._tune.searcher == "random":
            return Random(self._space, self._rng)
        if self._tune.searcher == "tpe":
            return Tpe(self._space, self._rng)
        choices = self._choices
        if self._is_ranker:
            return PolicySearcher(self._space, lambda points: PlannedExpectation(points, self._planned_worth), self._rng)
        return PolicySearcher(
            self._space, lambda points: PredictorExpectation(self._predictor, points, choices.row, self._expected), self._rng
        )

    def _planned_worth(self, point: Point) -> float | None:
        planned = self._choices.planned(point)
        return planned / self._choices.workers(point) * self._counted(point) if planned is not None else None

    def _expected(self, point: Point) -> float:
        """`_counted`, with what predictors do not know: the share of time that ranks wait for rows, and settings that no row names."""
        return self._counted(point) * self._choices.fed(point) * self._choices.unseen(point)

    def _measure(self, point: Mapping[str, Any], number: int, first_s: float | None) -> Trial | None:
        """Measure a point by a short attempt with an output and a scratch folder of its own. None if a stop was asked for."""

        def should_stop() -> bool:
            return self._context.should_stop() or time.monotonic() >= self._ends

        if should_stop():
            return None
        request = self._choices.request(point)
        if DATA_WORKERS in self._space.settings:
            request = replace(request, task=in_its_own_order(request.task, number))
        network, self._tried_network = None if self._tried_network else request.network, True
        trial = run_trial(
            number,
            point,
            replace(
                request,
                network=network,
                name=f"{self._task.name}-{number}",
                output=f"{self._context.output.task_uri(self._task.name)}/trials/{number}",
                scratch=str(self._context.scratch / f"{self._task.name}-{number}"),
                run=f"{request.run}-{number}",
            ),
            self._setting,
            Listener(self._task.name, f"{self._task.name}/{number}", self._context.emit),
            None if self._is_ranker else self._choices.row(point),
            limit_s=_FIRST_LIMIT_S if first_s is None else max(_LEAST_LIMIT_S, _SLOWEST * first_s),
            should_stop=should_stop,
        )
        return None if should_stop() else replace(trial, predicted=self._predicted(point))

    def _tell(self, trial: Trial) -> None:
        self._context.emit(
            Tried(
                task=self._task.name,
                number=trial.number,
                of=self._tune.budget.trials,
                settings=trial.point,
                predicted=trial.predicted,
                measured=trial.tokens_per_s,
                ratio=trial.ratio,
                failure=trial.failure,
                seconds=trial.seconds,
                unit=self._unit,
            )
        )

    def _budgeted(self) -> str:
        """The budget in words, before it is spent."""
        budget = self._tune.budget
        parts = shares(budget.trials, budget.rounds, budget.pairs)
        minutes = f" and {budget.minutes:g} minutes" if budget.minutes is not None else ""
        others = f"{parts.candidates} of other settings, {parts.rounds} of the file's own, {2 * parts.pairs} in pairs that confirm a winner"
        return f"at most {budget.trials} runs{minutes}: {others}"

    def _predicted(self, point: Mapping[str, Any]) -> float | None:
        """Predicted tokens/s (rows/s of a ranker) over all workers, by the knowledge before the search."""
        if self._is_ranker:
            return self._choices.planned(point)
        import pandas as pd

        rate = float(self._predictor.predict(pd.DataFrame([self._choices.row(point)])).tokens_per_sec_per_gpu.iloc[0])
        known = self._choices.fed(point) * self._choices.unseen(point)
        return rate * self._choices.workers(point) * known if math.isfinite(rate) else None

    def _without_history(self, why: str) -> None:
        self._context.emit(Warned(task=self._task.name, message=f"searching without history: {why}"))

    def _remembered(self) -> Record:
        """Measurements of earlier starts of this search on the same SKU and number of workers: a hub may resume it on another SKU."""
        place = f"{self._choices.workers({})} x {self._context.machine.sku}"
        try:
            found = Record.from_dict(json.loads(self._store.get(TRIALS)))
        except NotFound:
            return Record(place=place)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{self._store.url(TRIALS)} holds no record of trials: {error!r}", "remove it to start over") from error
        return found.at(place, self._space.has)


def _shown(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in ("workers", "zero", "micro_batch", "recompute", "attention")}
