"""What is known of a running job, event by event, and how each fact is said. Shared by the terminal's live view and plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tuneyard.api import JobSpec
from tuneyard.tracking import Evaluated, Event, Scored, Stage, Step, TaskEvent

State = Literal["waiting", "running", "succeeded", "failed", "stopped", "skipped"]


@dataclass
class TaskProgress:
    """One task: where it is, and the last that it said."""

    name: str
    kind: str
    state: State = "waiting"
    attempt: int = 1
    began: float | None = None
    ended: float | None = None
    stage: Stage | None = None
    step: Step | None = None
    scored: Scored | None = None
    held_out_loss: float | None = None
    entropy: float | None = None
    """Normalised entropy of a ranker's held-out rows."""
    resumed: bool = False

    @property
    def fraction(self) -> float | None:
        """0..1 of what the task is doing now; None where the length is not known."""
        done, of = self._done_of()
        return min(1.0, done / of) if of else None

    def _done_of(self) -> tuple[float, float]:
        if self.stage is not None:
            return self.stage.done, self.stage.of
        if self.step is not None:
            return self.step.step, self.step.of
        if self.scored is not None:
            return self.scored.rows, self.scored.of
        return 0, 0

    def doing(self) -> str:
        """`step 12/400`, `loading the model`, `rows 12/64`."""
        if self.stage is not None:
            stage = self.stage
            return f"{stage.name} {stage.done:,.0f}/{stage.of:,.0f} {stage.unit}".rstrip() if stage.of else stage.name
        if self.step is not None:
            return f"step {self.step.step}/{self.step.of}"
        if self.scored is not None:
            return f"rows {self.scored.rows}/{self.scored.of}"
        return "starting"

    def figures(self) -> list[str]:
        """`loss 3.214`, `5,230 tokens/s`, `MFU 31%`, `1.2 GB`, `ETA 1:02`: the known ones."""
        if self.step is not None:
            step = self.step
            held_out = [f"held-out {self.held_out_loss:.3f}"] if self.held_out_loss is not None else []
            held_out += [f"NE {self.entropy:.4f}"] if self.entropy is not None else []
            memory = [f"{step.memory_gb:.1f} GB"] if step.memory_gb is not None else []
            eta = [f"ETA {clock(step.eta_s)}"] if self.state == "running" and step.step < step.of else []
            rate = f"{step.tokens_per_s:,.0f} tokens/s" if step.rows_per_s is None else f"{step.rows_per_s:,.0f} rows/s"
            return [f"loss {step.loss:.3f}", *held_out, rate, f"MFU {share(step.mfu)}", *memory, *eta]
        if self.scored is not None:
            scored = self.scored
            errors = [f"{scored.errors} errors"] if scored.errors else []
            eta = [f"ETA {clock(scored.eta_s)}"] if self.state == "running" and 0 < scored.rows < scored.of else []
            rate = f"{scored.output_tokens_per_s:,.0f} output tokens/s" if scored.rows_per_s is None else f"{scored.rows_per_s:,.0f} rows/s"
            return [rate, *errors, *eta]
        return []

    def seconds(self, now: float) -> float | None:
        """How long it has run; None where it has not."""
        return None if self.began is None else (self.ended or now) - self.began


@dataclass
class JobProgress:
    """All tasks of a job, in the order in which they run."""

    job: JobSpec
    now: Callable[[], float] = time.monotonic
    tasks: dict[str, TaskProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks = {task.name: TaskProgress(task.name, task.kind) for task in self.job.spec.task_order()}

    def take(self, event: Event) -> None:
        """Fold an event in. Events of tasks that `--model` leaves out are ignored."""
        task = self.tasks.get(event.task)
        if task is None:
            return
        if isinstance(event, TaskEvent):
            self._take_task(task, event)
        elif isinstance(event, Stage):
            task.stage = event
        elif isinstance(event, Step):
            task.step, task.stage = event, None
        elif isinstance(event, Scored):
            task.scored, task.stage = event, None
        elif isinstance(event, Evaluated):
            task.held_out_loss = event.loss
            task.entropy = event.figures.get("normalised_entropy")

    def _take_task(self, task: TaskProgress, event: TaskEvent) -> None:
        task.attempt = event.attempt
        task.stage = None
        if event.state == "started":
            task.state, task.step = "running", None
            task.began = task.began or self.now()
            return
        task.state = event.state
        task.ended = self.now()


def clock(seconds: float) -> str:
    """`0:07`, `12:05`, `3:20:00`."""
    minutes, second = divmod(round(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def share(value: float) -> str:
    """0.312 -> `31%`, 0.0042 -> `0.4%`."""
    return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
