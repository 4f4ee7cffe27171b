"""Schedules evaluations and checkpoints, and ends a run that no longer improves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from tuneyard.api import TrainTask
from tuneyard.api.evaluation import Best
from tuneyard.training.progress import Progress

EVALUATIONS_PER_RUN = 20
SMALLEST_AUTO_INTERVAL = 10


class Cadence(TrainerCallback):
    """Requests a checkpoint when one is due, an evaluation at its interval, and both after the last step."""

    def __init__(self, task: TrainTask, *, steps: int, evaluates: bool, save_is_due: Callable[[int], bool]) -> None:
        self._save_is_due = save_is_due
        if task.evaluation.every_steps != "auto":
            self._evaluate_every = task.evaluation.every_steps
        elif task.checkpoint.every_steps != "auto":
            self._evaluate_every = task.checkpoint.every_steps
        else:
            self._evaluate_every = max(SMALLEST_AUTO_INTERVAL, math.ceil(steps / EVALUATIONS_PER_RUN))
        self._evaluates = evaluates

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002 - transformers' signature
        last = state.global_step >= state.max_steps
        control.should_save = control.should_save or last or self._save_is_due(state.global_step)
        control.should_evaluate = self._evaluates and (last or state.global_step % self._evaluate_every == 0)
        return control


class BestEvaluation(TrainerCallback):
    """Remembers the best evaluation, keeps its checkpoint, and ends the run after `patience` evaluations without a better one.

    A value is better if it is above (or below) the best one by more than `min_improvement`: of equal ones the first is kept. An evaluation
    without a finite value is no improvement.
    """

    def __init__(
        self, progress: Progress, goal: Best, *, patience: int | None, min_improvement: float, warn: Callable[[str], None]
    ) -> None:
        self._progress = progress
        self._goal = goal
        self._patience = patience
        self._min_improvement = min_improvement
        self._warn = warn

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002 - transformers' signature
        progress, name = self._progress, self._goal.metric
        value, best = progress.figure(name, state.global_step), progress.figure(name, progress.best_step)
        if value is None:
            self._warn(f"the evaluation after step {state.global_step} has no value of {name}, and counts as no improvement")
        if value is not None and (best is None or self._gain(value, best) > self._min_improvement):
            progress.best_step = state.global_step
            progress.evaluations_without_gain = 0
            control.should_save = True
            return control
        progress.evaluations_without_gain += 1
        if self._patience is not None and progress.evaluations_without_gain >= self._patience:
            control.should_training_stop = True
            control.should_save = True
        return control

    def _gain(self, value: float, best: float) -> float:
        return value - best if self._goal.is_max else best - value
