"""Tune tasks: a searcher proposes settings, short runs measure them, round after round, beside the settings of the file.

Machines are noisy and drift: the file's own settings run again in each round, what is measured counts relative to them, and the winner is
confirmed in pairs with them at the end. What was tried is written down after each trial: a search that was ended goes on with --resume.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tuneyard.api import BadInput, Device, FailureKind, JobFailed, StorageError, Task, check_task
from tuneyard.catalog import gpu
from tuneyard.planning import Plan
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.placing import choose_workers
from tuneyard.runtime.train import TrainSetting
from tuneyard.runtime.trials import Listener, Trial, run_trial, short
from tuneyard.storage import NotFound, open_store
from tuneyard.tracking import Stage, Tried, Warned
from tuneyard.training.request import TrainRequest
from tuneyard.tuning import (
    PolicySearcher,
    Predictor,
    PredictorExpectation,
    Random,
    Searcher,
    Space,
    Tpe,
    applied,
    default_settings,
    history_frame,
    listed_settings,
    settings_row,
    strategy_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from tuneyard.runtime.tasks import TaskContext

TRIALS = "trials.json"
PAIRS = 3
"""In which the winner is confirmed beside the file's settings."""
_LEAST_LIMIT_S = 180.0
_SLOWEST = 4.0
"""A trial that takes so many times as long as that of the file's settings hangs, or is of no use."""
_NO_GAIN = 0.01
"""A round that betters the best by less is one without gain; after two of them the search ends."""

Plans = Callable[[Task], TrainRequest]
"""Plans a train task for this machine. Raises BadInput where it cannot run."""


def run_tune(task: Task, context: TaskContext, plan: Plans, setting: TrainSetting, *, seed: int = 0) -> dict[str, Any]:
    """Search, and say what was found: the winner as a strategy, its gain over the file's settings, and all trials."""
    return _Search(task, context, plan, setting, np.random.default_rng(seed)).run()


@dataclass
class _Search:
    task: Task
    context: TaskContext
    plan: Plans
    setting: TrainSetting
    rng: np.random.Generator
    trials: list[Trial] = field(default_factory=list)
    """Of settings that a searcher chose."""
    own: list[Trial] = field(default_factory=list)
    """Of the file's settings."""
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        assert self.task.tune is not None
        self.tune = self.task.tune
        self.tuned = short(self.context.job.spec.task(self.tune.task), self.tune.steps_per_trial)
        if self.tuned.train is None:
            raise BadInput(f"task {self.task.name} tunes {self.tune.task}, which is a {self.tuned.kind} task", "name a train task")
        self.store = open_store(self.context.output.task_uri(self.task.name))
        self._facts = gpu(self.context.machine.sku)
        self._plans: dict[str, TrainRequest | None] = {}

    # --- the search

    def run(self) -> dict[str, Any]:
        space = self._space()
        predictor = Predictor.fit(self._history())
        searcher = self._searcher(space, predictor)
        remembered = self._remembered()
        known = f"{predictor.timed_rows} timed runs in history" if predictor.timed_rows else "no history: by the planner's estimates"
        self.context.emit(Stage(task=self.task.name, name=f"searching {space.size} combinations, {known}"))
        per_round = -(-self.tune.budget.trials // self.tune.budget.rounds)
        best, quiet = 0.0, 0
        while len(self.trials) < self.tune.budget.trials and not self._is_over() and quiet < 2:
            own = self._own()
            if own is None or own.tokens_per_s is None:
                raise self._own_failed(own)
            asked = searcher.ask(min(per_round, self.tune.budget.trials - len(self.trials)))
            if not asked:
                break
            before = best
            for point in asked:
                trial = remembered.pop(_key(point), None) or self._try(point, predictor, own.tokens_per_s)
                if trial is None:
                    break
                self.trials.append(trial)
                self._write()
                ratio = (trial.tokens_per_s or 0.0) / own.tokens_per_s
                best = max(best, ratio)
                searcher.tell(point, self._worth(trial, ratio))
            quiet = quiet + 1 if best <= before + _NO_GAIN else 0
        return self._result()

    def _worth(self, trial: Trial, ratio: float) -> float | None:
        """What the searcher is told: tokens/s/GPU as on a machine that runs the file's settings as fast as in the first round."""
        if trial.tokens_per_s is None or self.own[0].tokens_per_s is None:
            return None
        return ratio * self.own[0].tokens_per_s / self._workers(trial.point)

    def _is_over(self) -> bool:
        minutes = self.tune.budget.minutes
        # The confirmation wants its share of the time.
        share = 1 - 2 * PAIRS / (2 * PAIRS + self.tune.budget.trials + self.tune.budget.rounds)
        late = minutes is not None and time.monotonic() - self._began > share * 60 * minutes
        return late or self.context.should_stop()

    def _own(self) -> Trial | None:
        trial = self._try({}, None, None)
        if trial is not None:
            self.own.append(trial)
        return trial

    def _own_failed(self, own: Trial | None) -> JobFailed:
        if own is None or self.context.should_stop():
            return JobFailed(f"the search of {self.task.name} was stopped", "go on with --resume", kind=FailureKind.CANCELLED)
        return JobFailed(
            f"the settings of the file do not run, and nothing can be compared with them: {own.message or own.failure}",
            f"make task {self.tuned.name} run first",
            kind=FailureKind.USER_ERROR,
        )

    # --- one trial

    def _try(self, point: Mapping[str, Any], predictor: Predictor | None, against: float | None) -> Trial | None:
        """None where the search was asked to stop."""
        number = len(self.trials) + len(self.own) + 1
        request = self._request(point)
        assert request is not None
        named = replace(
            request,
            name=f"{self.task.name}-{number}",
            output=f"{self.context.output.task_uri(self.task.name)}/trials/{number}",
            scratch=str(self.context.scratch / f"{self.task.name}-{number}"),
            run=f"{request.run}-{number}",
        )
        first = self.own[0].seconds if self.own else math.inf
        trial = run_trial(
            point,
            named,
            self.setting,
            Listener(f"{self.task.name}/{number}", self.context.emit),
            self._row(point),
            limit_s=max(_LEAST_LIMIT_S, _SLOWEST * first) if self.own else 3600.0,
            should_stop=self.context.should_stop,
        )
        if self.context.should_stop():
            return None
        self.context.emit(
            Tried(
                task=self.task.name,
                number=number,
                of=self.tune.budget.trials + self.tune.budget.rounds + 2 * PAIRS,
                settings=dict(point),
                predicted=self._predicted(predictor, point),
                measured=trial.tokens_per_s,
                against=against,
                failure=trial.failure,
                seconds=trial.seconds,
            )
        )
        return trial

    def _predicted(self, predictor: Predictor | None, point: Mapping[str, Any]) -> float | None:
        import pandas as pd

        if predictor is None:
            return None
        rate = float(predictor.predict(pd.DataFrame([self._row(point)])).tokens_per_sec_per_gpu.iloc[0])
        return rate * self._workers(point) if math.isfinite(rate) else None

    # --- what can be chosen

    def _space(self) -> Space:
        settings = listed_settings(self.tune.space)
        if not settings:
            settings = default_settings(
                self.tuned,
                workers=self._worker_counts(),
                is_cpu=self._facts.is_cpu,
                flash=find_spec("flash_attn") is not None,
                liger=find_spec("liger_kernel") is not None,
            )
        return Space(settings, self._is_legal)

    def _worker_counts(self) -> list[int]:
        most = choose_workers(self.tuned, self.context.machine)
        if isinstance(self.tuned.resources.workers, int):
            return [most]
        assert self.tuned.train is not None
        return [count for count in range(1, most + 1) if self.tuned.train.batch.global_ % count == 0]

    def _is_legal(self, point: Mapping[str, Any]) -> bool:
        return self._request(point) is not None

    def _request(self, point: Mapping[str, Any]) -> TrainRequest | None:
        """What the planner makes of these settings; None where they cannot work or do not fit."""
        key = _key(point)
        if key not in self._plans:
            try:
                self._plans[key] = self._planned(applied(self.tuned, point) if point else self.tuned)
            except BadInput:
                if not point:
                    raise
                self._plans[key] = None
        return self._plans[key]

    def _planned(self, task: Task) -> TrainRequest:
        facts = self._facts
        here = task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [facts.sku]})})
        device = Device(sku=facts.sku, flash=facts.has_flash, bf16="bf16" in facts.peak_flops, is_cpu=facts.is_cpu)
        broken = check_task(here, device=device)
        if broken:
            raise BadInput(broken[0].reason, "take one of the combinations that work")
        return self.plan(task)

    def _workers(self, point: Mapping[str, Any]) -> int:
        request = self._request(point)
        assert request is not None
        return request.plan.workers

    def _row(self, point: Mapping[str, Any]) -> dict[str, Any]:
        request = self._request(point)
        assert request is not None
        shape = model_shape(request.model_uri, request.task.model.revision)
        return settings_row(request.task, shape, request.plan, gpus_per_node=max(1, self.context.machine.devices))

    def _searcher(self, space: Space, predictor: Predictor) -> Searcher:
        if self.tune.searcher == "random":
            return Random(space, self.rng)
        if self.tune.searcher == "tpe":
            return Tpe(space, self.rng)
        return PolicySearcher(space, lambda points: PredictorExpectation(predictor, points, self._row), self.rng)

    def _history(self) -> pd.DataFrame:
        from tuneyard.tracking.history import History

        runs: list[dict[str, Any]] = []
        if os.environ.get("TUNEYARD_HISTORY", "on") != "off":
            try:
                history = History.open()
                runs = history.training_runs()
                history.close()
            except (StorageError, BadInput) as error:
                self.context.emit(Warned(task=self.task.name, message=f"searching without history: {error.cause}"))
        return history_frame(runs)

    # --- what is kept

    def _remembered(self) -> dict[str, Trial]:
        """Trials of an earlier start of this search, by their settings."""
        try:
            told = json.loads(self.store.get(TRIALS))
        except NotFound:
            return {}
        return {_key(each["point"]): Trial(**each) for each in told}

    def _write(self) -> None:
        self.store.put(TRIALS, json.dumps([trial.to_dict() for trial in self.trials], indent=1).encode())

    def _result(self) -> dict[str, Any]:
        """Confirms the best in pairs with the file's settings; without a gain there, those stay."""
        fine = sorted((trial for trial in self.trials if trial.tokens_per_s), key=lambda trial: -(trial.tokens_per_s or 0))
        result: dict[str, Any] = {
            "tuned": self.tuned.name,
            "searcher": self.tune.searcher,
            "trials": [trial.to_dict() for trial in self.trials],
            "own": [trial.to_dict() for trial in self.own],
            "plan": _shown(self._planned(self.tuned).plan),
            "best": {},
            "strategy": {},
            "gain": 0.0,
            "pairs": [],
        }
        if not fine:
            return result
        pairs = self._pairs(fine[0])
        ratios = [theirs / own for own, theirs in pairs]
        gain = statistics.median(ratios) - 1 if ratios else 0.0
        result |= {"pairs": pairs, "gain": gain, "tried_best": fine[0].point}
        if gain > 0:
            result |= {"best": fine[0].point, "strategy": strategy_of(fine[0].point)}
        return result

    def _pairs(self, best: Trial) -> list[tuple[float, float]]:
        """Rates of the file's settings and of the best, in pairs; who is first changes."""
        found: list[tuple[float, float]] = []
        for number in range(PAIRS):
            order: Sequence[Mapping[str, Any]] = ({}, best.point) if number % 2 == 0 else (best.point, {})
            rates = {}
            for point in order:
                trial = self._try(point, None, None)
                if trial is None or trial.tokens_per_s is None:
                    return found
                rates[_key(point)] = trial.tokens_per_s
            found.append((rates[_key({})], rates[_key(best.point)]))
        return found


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)


def _shown(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in ("workers", "zero", "micro_batch", "recompute", "attention")}
