"""The curves of a task for its report, collected while it runs, in bounded memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tuneyard.tracking.events import Checkpointed, Evaluated, Event, MachineUsed, Step, Warned

MOST_POINTS = 2_000
MOST_WARNINGS = 50
_FIELDS = (
    "step",
    "loss",
    "learning_rate",
    "tokens_per_s",
    "rows_per_s",
    "mfu",
    "memory_gb",
    "grad_norm",
    "router_loss",
    "busiest_expert",
    "data_share",
)


@dataclass
class TaskSeries:
    """Measurements of one task. Beyond MOST_POINTS steps every second point is dropped, and only every second later one is kept."""

    points: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _FIELDS})
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    """Of held-out rows, beside the loss."""
    split: dict[str, float] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    machines: dict[int, dict[str, list[Any]]] = field(default_factory=dict)
    """By machine, columns of `MachineUsed`: `step`, and a column for each figure."""
    warnings: list[str] = field(default_factory=list)
    stride: int = 1

    def add(self, event: Event) -> None:
        if isinstance(event, Step):
            self._add_step(event)
        elif isinstance(event, Evaluated):
            self.evaluations.append((event.step, event.loss))
            if event.figures:
                self.figures.append({"step": event.step, **event.figures})
        elif isinstance(event, Checkpointed):
            self.checkpoints.append({"step": event.step, "uri": event.uri, "seconds": event.seconds, "bytes": event.bytes})
        elif isinstance(event, MachineUsed):
            self._add_machine(event)
        elif isinstance(event, Warned) and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(event.message)

    def _add_step(self, event: Step) -> None:
        for name, seconds in asdict(event.split).items():
            self.split[name] = self.split.get(name, 0.0) + seconds
        if event.step % self.stride:
            return
        for name in event.figures:
            self.points.setdefault(name, [None] * len(self.points["step"]))
        for name, column in self.points.items():
            column.append(getattr(event, name) if name in _FIELDS else event.figures.get(name))
        if len(self.points["step"]) > MOST_POINTS:
            self.stride *= 2
            kept = [index for index, step in enumerate(self.points["step"]) if step % self.stride == 0]
            self.points = {name: [column[index] for index in kept] for name, column in self.points.items()}

    def _add_machine(self, event: MachineUsed) -> None:
        columns = self.machines.setdefault(event.machine, {"step": []})
        for name in event.figures:
            columns.setdefault(name, [None] * len(columns["step"]))
        for name, column in columns.items():
            column.append(event.step if name == "step" else event.figures.get(name))
        if len(columns["step"]) > MOST_POINTS // max(1, len(self.machines)):
            self.machines[event.machine] = {name: column[1::2] for name, column in columns.items()}

    def to_dict(self) -> dict[str, Any]:
        """The curves for report.json, without empty ones."""
        values: dict[str, Any] = {}
        if self.points["step"]:
            values["series"] = {name: column for name, column in self.points.items() if any(item is not None for item in column)}
            values["split"] = dict(self.split)
            values["losses"] = list(self.points["loss"])
        if self.evaluations:
            values["evaluations"] = [list(pair) for pair in self.evaluations]
        if self.machines:
            values["machines"] = [{"machine": number, **self.machines[number]} for number in sorted(self.machines)]
        for name in ("figures", "checkpoints", "warnings"):
            if getattr(self, name):
                values[name] = getattr(self, name)
        return values
