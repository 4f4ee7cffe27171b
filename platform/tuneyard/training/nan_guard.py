"""Stops a run whose loss or gradient is not finite, before any result of it is committed."""

from __future__ import annotations

import math

from tuneyard.api import FailureKind, JobFailed

_REMEDIES = {
    "fp16": "use precision bf16 or fp32, or lower optimizer.learningRate",
    "bf16": "lower optimizer.learningRate, raise optimizer.warmup, or use precision fp32 to rule out overflow",
    "fp32": "lower optimizer.learningRate, raise optimizer.warmup, or set optimizer.maxGradNorm to 1.0",
}


def check_loss(step: int, loss: float, *, learning_rate: float, precision: str, last_loss: float | None) -> None:
    """Raise JobFailed if `loss` is NaN or infinite. Called for every step, and before every checkpoint."""
    if math.isfinite(loss):
        return
    before = f"the step before had {last_loss:.4g}" if last_loss is not None else "it was the first step"
    raise JobFailed(
        f"the loss became {loss} at step {step} (learning rate {learning_rate:.3g}, precision {precision}; {before}); "
        "nothing was saved since",
        f"{_REMEDIES[precision]}; samples whose labels are all masked can cause it too. The last committed checkpoint is untouched",
        kind=FailureKind.USER_ERROR,
    )


def refuse_predictions(step: int, *, learning_rate: float, table_rate: float) -> None:
    """Raise JobFailed for a ranker whose predictions for held-out rows are not finite."""
    raise JobFailed(
        f"after step {step} some predictions of held-out rows are not finite (learning rate {learning_rate:.3g}, of tables "
        f"{table_rate:.3g}); nothing was saved since",
        "lower optimizer.learningRate or tables.learningRate. The last committed checkpoint is untouched",
        kind=FailureKind.USER_ERROR,
    )


def refuse_gradient(step: int, *, learning_rate: float, precision: str) -> None:
    """Raise JobFailed for a step with a finite loss and a gradient that is not finite: its optimizer step has broken the weights."""
    raise JobFailed(
        f"the gradient of step {step} was not finite, though its loss was (learning rate {learning_rate:.3g}, precision {precision}); "
        "nothing was saved since",
        f"{_REMEDIES[precision]}; code of the model that divides by zero or takes a root of it gives such gradients. "
        "The last committed checkpoint is untouched",
        kind=FailureKind.USER_ERROR,
    )
