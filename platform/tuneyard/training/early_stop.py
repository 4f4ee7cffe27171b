"""Schedules evaluations and checkpoints, and ends a run that no longer improves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from tuneyard.api import TrainTask
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


class EarlyStop(TrainerCallback):
    """Remembers the best evaluation, keeps its checkpoint, and ends the run after `patience` evaluations without a better one.

    A loss is better if it is lower by more than `min_improvement`.
    """

    def __init__(self, progress: Progress, *, patience: int, min_improvement: float) -> None:
        self._progress = progress
        self._patience = patience
        self._min_improvement = min_improvement

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> Any:  # noqa: ARG002
        best = self._progress.best_eval_loss
        if best is None or metrics["eval_loss"] < best - self._min_improvement:
            self._progress.best_step = state.global_step
            self._progress.evaluations_without_gain = 0
            control.should_save = True
        else:
            self._progress.evaluations_without_gain += 1
            if self._progress.evaluations_without_gain >= self._patience:
                control.should_training_stop = True
                control.should_save = True
        return control
