"""The record of a run so far: the same on every rank, written into each checkpoint, and the source of the TrainResult."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tuneyard.api.evaluation import LOSS

_LISTS = ("losses", "router_losses", "busiest", "expert_load", "part_tokens", "figures")


@dataclass
class Progress:
    """Grows by one step at a time. `losses[k]` is the mean loss of step k + 1 over the tokens of all workers."""

    losses: list[float] = field(default_factory=list)
    router_losses: list[float] = field(default_factory=list)
    """For each step, the loss that spreads tokens over experts, before its weight; empty without one."""
    busiest: list[float] = field(default_factory=list)
    """For each step, the load of the busiest expert over the mean load, averaged over layers; empty for dense models."""
    expert_load: list[list[float]] = field(default_factory=list)
    """Layers x experts: load over the layer's mean, as a moving average over the last steps."""
    eval_losses: list[tuple[int, float]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    """Figures of held-out rows beside their loss, each with its `step`; empty except for programs, rankers and preference pairs."""
    step_figures: dict[str, list[float]] = field(default_factory=dict)
    """Figures of each step beside its loss, by name; of preference pairs."""
    tokens: int = 0
    part_tokens: list[list[int]] = field(default_factory=list)
    """For each step, the tokens of each part of the mixture; empty if the data are no mixture."""
    split_s: dict[str, float] = field(default_factory=dict)
    """Seconds of rank 0 by kind of work, over all steps; they add up to the wall time of stepping."""
    best_step: int = 0
    evaluations_without_gain: int = 0

    @property
    def best_eval_loss(self) -> float | None:
        return self.figure(LOSS, self.best_step)

    def figure(self, name: str, step: int) -> float | None:
        """The held-out loss, or another figure of held-out rows, after a step; None if there is none, or if it is not finite."""
        found = dict(self.eval_losses) if name == LOSS else {each["step"]: each.get(name) for each in self.figures}
        value = found.get(step)
        return value if value is not None and math.isfinite(value) else None

    def figures_of_result(self) -> dict[str, Any]:
        """Figures of held-out rows of the best evaluation, or of the last one, without its step."""
        found = {each["step"]: each for each in self.figures}
        last = found.get(self.best_step, self.figures[-1] if self.figures else {})
        return {name: value for name, value in last.items() if name != "step"}

    def to_dict(self) -> dict[str, Any]:
        """A copy that later steps do not change. Shallow: there is a loss per step, and `asdict` would visit each."""
        lists = {name: [*getattr(self, name)] for name in _LISTS}
        return (
            lists
            | {"eval_losses": [*self.eval_losses], "split_s": {**self.split_s}}
            | {"step_figures": {name: [*values] for name, values in self.step_figures.items()}}
            | {name: getattr(self, name) for name in ("tokens", "best_step", "evaluations_without_gain")}
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """The progress in a checkpoint. Unknown fields of another version are dropped."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        return cls(**{**known, "eval_losses": [(step, loss) for step, loss in values["eval_losses"]]})
