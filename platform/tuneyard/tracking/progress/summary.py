"""The steps of one attempt together: rates, peak memory, and a few losses. Pure, and of bounded size after any number of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tuneyard.tracking.events import Step

SUMMED = ("steps", "step_s", "tokens_per_s", "mfu", "memory_gb")
"""Names of the figures of a summary, in history and in reports of attempts."""
MOST_LOSSES = 16
"""Kept losses beside the last one."""


@dataclass(frozen=True)
class StepSummary:
    """Sums over the steps of an attempt. `timed` sums leave out the first step, which compiles and fills caches."""

    steps: int = 0
    timed_steps: int = 0
    timed_s: float = 0.0
    timed_tokens: float = 0.0
    timed_mfu_s: float = 0.0
    """MFU times seconds."""
    memory_gb: float | None = None
    last: tuple[int, float] | None = None
    """Step and loss."""
    losses: tuple[tuple[int, float], ...] = ()
    stride: int = 1
    """A loss is kept if its step is a multiple."""

    @property
    def step_s(self) -> float | None:
        return self.timed_s / self.timed_steps if self.timed_steps else None

    @property
    def tokens_per_s(self) -> float | None:
        return self.timed_tokens / self.timed_s if self.timed_s and self.timed_tokens else None

    @property
    def mfu(self) -> float | None:
        return self.timed_mfu_s / self.timed_s if self.timed_s and self.timed_mfu_s else None

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The kept losses and the last one, by step."""
        return self.losses if self.last is None or self.last in self.losses else (*self.losses, self.last)

    def after(self, event: Step) -> StepSummary:
        """The summary once `event` has happened. Figures that are not finite change nothing."""
        peak = max((each for each in (self.memory_gb, event.memory_gb) if each is not None and math.isfinite(each)), default=None)
        known = replace(self, steps=self.steps + 1, memory_gb=peak)
        if self.steps and math.isfinite(event.step_s) and event.step_s > 0:
            known = replace(
                known,
                timed_steps=self.timed_steps + 1,
                timed_s=self.timed_s + event.step_s,
                timed_tokens=self.timed_tokens + event.tokens,
                timed_mfu_s=self.timed_mfu_s + (event.mfu * event.step_s if math.isfinite(event.mfu) else 0.0),
            )
        return known._with_loss(event.step, event.loss) if math.isfinite(event.loss) else known

    def _with_loss(self, step: int, loss: float) -> StepSummary:
        stride, losses = self.stride, self.losses
        if step % stride == 0:
            losses = (*losses, (step, loss))
        while len(losses) > MOST_LOSSES:
            stride *= 2
            losses = tuple(each for each in losses if each[0] % stride == 0)
        return replace(self, last=(step, loss), losses=losses, stride=stride)


def summed(summary: StepSummary) -> dict[str, Any] | None:
    """The figures of a summary by name; None before the first step."""
    return {name: getattr(summary, name) for name in SUMMED} if summary.steps else None
