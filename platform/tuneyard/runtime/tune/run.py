"""Runs tune tasks: a `tuning.Search` on this machine, where each measurement is a short attempt of the tuned task.

trials.json holds all measurements after each of them, so that a stopped or killed search resumes with --resume.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tuneyard.api import BadInput, FailureKind, JobFailed, Task
from tuneyard.api.worker_counts import gangs_in
from tuneyard.runtime.task_context import TaskContext
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.tune.gangs import Run, SideBySide, settings_of_gangs
from tuneyard.runtime.tune.scoring import TunedScoring
from tuneyard.runtime.tune.training import TunedTraining
from tuneyard.runtime.tune.trials import HANG, STOPPED
from tuneyard.runtime.tune.tuned import Tuned
from tuneyard.storage import NotFound, open_store
from tuneyard.tracking import Stage, Tried, Warned
from tuneyard.training.request import TrainRequest
from tuneyard.tuning import (
    IncumbentFailed,
    Point,
    PolicySearcher,
    Random,
    Record,
    Search,
    Searcher,
    Tpe,
    Trial,
    effects,
    shares,
)
from tuneyard.tuning.passed_on import told

TRIALS = "trials.json"
SharedPlans = Callable[[Task, int], TrainRequest]
"""Plans a train or rank task for these machines, which so many gangs share. Raises BadInput if it cannot run."""
_LEAST_LIMIT_S = 180.0
_FIRST_LIMIT_S = 3600.0
_SLOWEST = 4.0
"""A trial is ended after this many times the duration of the file's own settings."""


def run_tune(task: Task, context: TaskContext, plan: SharedPlans, setting: TrainSetting, *, seed: int = 0) -> dict[str, Any]:
    """Run a search. Returns the winner, its gain over the file's settings, and all measurements. `status` is stopped if a stop was asked
    for.

    Raises BadInput if there is nothing to search, and JobFailed if the settings of the file do not run.
    """
    began = time.monotonic()  # loading and starting count towards the budget
    assert task.tune is not None
    tuned = context.job.spec.task(task.tune.task)
    count = gangs_in(task.tune, tuned, context.machine.devices)
    settings = settings_of_gangs(setting, count, context.machine.devices // count)
    gangs = SideBySide(settings, context.emit)
    context = replace(context, emit=gangs.emit)
    if tuned.score is not None:
        choices: Tuned = TunedScoring(task, tuned, context)
    else:
        choices = TunedTraining(task, tuned, context, lambda tried: plan(tried, count), settings)
    tuning = _Tuning(task, context, choices, gangs, np.random.default_rng(seed), began)
    context.machines.use_ray()  # only once it is known that there is something to search
    return tuning.run()


class _Tuning:
    """One tune task."""

    def __init__(self, task: Task, context: TaskContext, tuned: Tuned, gangs: SideBySide, rng: np.random.Generator, began: float) -> None:
        assert task.tune is not None
        self._task, self._context, self._tuned, self._gangs, self._rng = task, context, tuned, gangs, rng
        self._tune = task.tune
        tuned.space.check(rng)
        self._report_unused(task.tune.space)
        self._store = open_store(context.output.task_uri(task.name))
        minutes = task.tune.budget.minutes
        self._ends = began + 60 * minutes if minutes is not None else math.inf

    def _report_unused(self, listed: Mapping[str, Any]) -> None:
        """Warn of each listed value that cannot work here with any of the others."""
        for path, value in self._tuned.space.unused(self._rng) if listed else ():
            why = self._tuned.why_not({path: value}) or "no combination with it works, or it is what the file has"
            self._context.emit(Warned(task=self._task.name, message=f"{path} {value} is not tried: {why}"))

    def run(self) -> dict[str, Any]:
        self._store.delete_prefix("trials/")  # leftovers of a trial during which the search was killed
        record = self._remembered()
        known, count, wanted = self._tuned.known, self._gangs.count, self._tune.budget.at_once
        if count < wanted:
            self._context.emit(Warned(task=self._task.name, message=self._why_fewer(count, wanted)))
        self._context.emit(
            Stage(
                task=self._task.name,
                name=f"searching {self._tuned.space.size} combinations"
                + (f" on {count} gangs at once, " if count > 1 else ", ")
                + (f"{known} timed runs in history" if known else f"no history: {self._tuned.guess}")
                + (f", {len(record.trials)} trials measured before" if record.trials else "")
                + f"; {self._budgeted()}",
            )
        )
        try:
            with self._gangs.running(self._prepared) as gangs:
                ended = self._search(gangs).run(record, self._searcher)
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

    def _why_fewer(self, count: int, wanted: int) -> str:
        machine, workers = self._context.machine, self._tuned.devices({})
        return f"{count} of {wanted} gangs measure at once: {machine.devices} x {machine.sku} have no room for more gangs of {workers}"

    def _search(self, gangs: SideBySide) -> Search:
        budget = self._tune.budget
        return Search(
            trials=budget.trials,
            rounds=budget.rounds,
            pairs=budget.pairs,
            seconds=max(0.0, self._ends - time.monotonic()) if budget.minutes is not None else None,
            worth=self._worth,
            gangs=gangs,
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
            "unit": self._tuned.unit,
            "best": best.point if best is not None and gain > 0 else {},
            "gain": gain,
            "tried_best": best.point if best is not None else {},
            "leads": record.leader() is not None,
            "ratios": record.ratios(),
            "effects": [asdict(effect) for effect in effects(record.trials)],
            "gangs": self._gangs.count,
            "plan": self._tuned.plan(),
            **self._learned(record),
            **{name: value for name, value in record.to_dict().items() if name not in ("numbers", "place")},
        }

    def _learned(self, record: Record) -> dict[str, Any]:
        """All runs as rows of history, for a hub that keeps them; empty for a task that history has no rows for."""
        base = self._tuned.row({})
        if base is None:
            return {}
        runs = [*record.own, *record.trials, *(run for pair in record.pairs for run in pair)]
        known = [run for run in runs if run.failure != STOPPED]
        return {"learned": told(((run.number, self._tuned.row(run.point) or {}, self._outcome(run)) for run in known), base)}

    def _outcome(self, run: Trial) -> dict[str, Any]:
        if run.tokens_per_s is None:
            return {"status": "failed", "failure": FailureKind.DEADLINE.value if run.failure == HANG else run.failure}
        return {"status": "succeeded", "tokens_per_s_per_gpu": run.tokens_per_s / self._tuned.devices(run.point)}

    def _share(self, point: Point) -> float:
        """Factor from the speed over all devices to the worth of a point: of each device for the objective `cost`, else 1."""
        return 1 / self._tuned.devices(point) if self._tune.objective == "cost" else 1.0

    def _worth(self, trial: Trial) -> float:
        return (trial.tokens_per_s or 0.0) * self._share(trial.point)

    def _searcher(self) -> Searcher:
        space = self._tuned.space
        if self._tune.searcher == "random":
            return Random(space, self._rng)
        if self._tune.searcher == "tpe":
            return Tpe(space, self._rng)
        return PolicySearcher(space, lambda points: self._tuned.expectation(points, self._share), self._rng)

    def _prepared(self, gang: int, point: Mapping[str, Any], number: int, first_s: float | None) -> Run:
        """A run that measures a point by a short attempt with an output and a scratch folder of its own."""

        def should_stop() -> bool:
            return self._gangs.is_given_up or self._context.should_stop() or time.monotonic() >= self._ends

        def run() -> Trial | None:
            if should_stop():
                return None
            trial = self._tuned.measure(gang, point, number, limit_s, should_stop)
            return None if should_stop() else replace(trial, predicted=predicted)

        limit_s = _FIRST_LIMIT_S if first_s is None else max(_LEAST_LIMIT_S, _SLOWEST * first_s)
        predicted = self._tuned.predicted(point)
        return run

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
                unit=self._tuned.unit,
                gang=trial.gang if self._gangs.count > 1 else 0,
            )
        )

    def _budgeted(self) -> str:
        """The budget in words, before it is spent."""
        budget = self._tune.budget
        parts = shares(budget.trials, budget.rounds, budget.pairs, self._gangs.count)
        minutes = f" and {budget.minutes:g} minutes" if budget.minutes is not None else ""
        others = f"{parts.candidates} of other settings, {parts.own} of the file's own, {2 * parts.pairs} in pairs that confirm a winner"
        return f"at most {budget.trials} runs{minutes}: {others}"

    def _remembered(self) -> Record:
        """Measurements of earlier starts of this search on the same SKU and number of devices: a hub may resume it on another SKU."""
        place = f"{self._tuned.devices({})} x {self._context.machine.sku}"
        try:
            found = Record.from_dict(json.loads(self._store.get(TRIALS)))
        except NotFound:
            return Record(place=place)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{self._store.url(TRIALS)} holds no record of trials: {error!r}", "remove it to start over") from error
        return found.at(place, self._tuned.space.has)
