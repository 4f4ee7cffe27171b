"""Tokens/s and MFU of each step, from analytic FLOPs.

MFU = model FLOPs of the step / (wall time * peak FLOP/s of the workers' devices at the precision used). Model FLOPs count forward and
backward of the trained weights, once: recomputation is work of the hardware, not of the model (PaLM, Chowdhery et al. 2022, app. B).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuneyard.training.progress import Progress
from tuneyard.training.stopwatch import Phase

FlopsOf = Callable[[float, float], float]
"""(tokens, mean number of tokens in a token's own sample) -> model FLOPs of forward and backward."""


Unit = Literal["tokens", "rows"]


@dataclass(frozen=True)
class Rate:
    step_s: float
    tokens_per_s: float
    mfu: float


class Throughput:
    """Sums over steps. The first step of an attempt warms caches and compiles kernels: it is shown, but left out of the mean rates."""

    def __init__(self, progress: Progress, flops_of: FlopsOf, peak_flops: float, unit: Unit = "tokens") -> None:
        """`peak_flops`: FLOP/s of all workers' devices together, at the precision used. `unit`: the unit of counts: rows, if a program
        trains on something other than tokens.
        """
        self.unit = unit
        self._progress = progress
        self._flops_of = flops_of
        self._peak_flops = peak_flops
        self._steps = 0
        self._first, self._first_work = Rate(0.0, 0.0, 0.0), 0.0
        self._seconds = 0.0
        self._tokens = 0.0
        self._work = 0.0

    def add(self, tokens: float, squares: float, seconds: dict[Phase, float]) -> Rate:
        """Account for one step: sums over workers, and this worker's seconds by phase."""
        wall = sum(seconds.values())
        stepping = max(wall - seconds.get("checkpoint", 0.0) - seconds.get("evaluation", 0.0), 1e-9)
        work = self._flops_of(tokens, squares / max(tokens, 1))
        rate = Rate(wall, tokens / stepping, work / stepping / self._peak_flops)
        for phase, spent in seconds.items():
            self._progress.split_s[phase] = self._progress.split_s.get(phase, 0.0) + spent
        if self._steps == 0:
            self._first, self._first_work = rate, work
        else:
            self._seconds += stepping
            self._tokens += tokens
            self._work += work
        self._steps += 1
        return rate

    @property
    def flops_per_step(self) -> float:
        """Mean model FLOPs of a step, over all workers."""
        return self._work / (self._steps - 1) if self._steps > 1 else self._first_work

    def mean(self) -> Rate:
        """Rates over the steps of this attempt, without checkpoints and evaluations."""
        if self._steps <= 1:
            return self._first
        step_s = self._seconds / (self._steps - 1)
        return Rate(step_s, self._tokens / self._seconds, self._work / self._seconds / self._peak_flops)
