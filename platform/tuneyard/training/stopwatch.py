"""The time of a step by phase, measured without stopping the GPU.

A stopwatch is always in exactly one phase, so its phases add up to the wall time. On a GPU the marks are CUDA events on the stream of the
work itself. They are read one step later, when they have passed, and cost no synchronisation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tuneyard.tracking.events import TimeSplit

Phase = Literal["data", "forward", "backward", "optimizer", "checkpoint", "evaluation", "other"]


@dataclass(frozen=True)
class Lap:
    """The marks of one step: each phase with its start. The last instant ends the step."""

    marks: tuple[tuple[Phase, Any], ...]
    end: Any

    def seconds(self) -> dict[Phase, float]:
        """Seconds by phase. On a GPU this waits until the step has run there."""
        spent: dict[Phase, float] = {}
        ends = [instant for _, instant in self.marks[1:]] + [self.end]
        for (phase, begin), end in zip(self.marks, ends, strict=True):
            spent[phase] = spent.get(phase, 0.0) + _between(begin, end)
        return spent


class Stopwatch:
    """Marks the phases of a step. The trainer calls `mark` at every change of work, and `lap` at the end of a step."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[Phase, Any]] = [("other", self._now())]

    def mark(self, phase: Phase) -> None:
        if self._marks[-1][0] != phase:
            self._marks.append((phase, self._now()))

    def lap(self) -> Lap:
        """End the step and begin the next."""
        now = self._now()
        lap = Lap(tuple(self._marks), now)
        self._marks = [("other", now)]
        return lap

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def split_of(seconds: dict[Phase, float]) -> TimeSplit:
    """Seconds by phase in the form of events. Evaluation counts as other."""
    named = {f"{phase}_s": value for phase, value in seconds.items() if phase != "evaluation"}
    return TimeSplit(**{**named, "other_s": seconds.get("other", 0.0) + seconds.get("evaluation", 0.0)})


def _between(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
