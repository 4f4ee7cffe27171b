"""Events as named metrics, parameters and notes: the same names for every tracker. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.api.secrets import redact_fields
from tuneyard.tracking.events import Evaluated, Event, MachineUsed, Scored, Step, TaskEvent

LONGEST_NAME = 240
"""MLflow takes 250 characters."""
_OF_A_STEP = (
    "loss",
    "learning_rate",
    "tokens_per_s",
    "rows_per_s",
    "mfu",
    "memory_gb",
    "grad_norm",
    "step_s",
    "router_loss",
    "busiest_expert",
)
_UNUSUAL = re.compile(r"[^\w\-. :]")
"""Outside the characters that MLflow takes; `/` separates the words of a name."""


@dataclass(frozen=True)
class Metrics:
    """See `Tracker.metrics`."""

    values: Mapping[str, float]
    axis: str
    step: int | None


@dataclass(frozen=True)
class Parameters:
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Note:
    name: str
    text: str


Told = Metrics | Parameters | Note


def parameters_of(job: JobSpec) -> Parameters:
    """The JobSpec, without secrets, as `job/tasks/train/train/steps` and the like."""
    return Parameters(flat("job", redact_fields(job.to_yaml_dict()["spec"])))


def told(event: Event) -> Iterator[Told]:
    """What a tracker is told of an event."""
    if isinstance(event, Step):
        split = {f"time/{name}": value for name, value in asdict(event.split).items()}
        yield _metrics(event, {name: getattr(event, name) for name in _OF_A_STEP} | dict(event.figures) | split, event.step)
    elif isinstance(event, Evaluated):
        yield _metrics(event, {"eval_loss": event.loss, **event.figures}, event.step)
    elif isinstance(event, MachineUsed):
        yield _metrics(event, {f"machines/{event.machine}/{name}": value for name, value in event.figures.items()}, event.step)
    elif isinstance(event, Scored):
        yield _metrics(event, {"rows": event.rows, "errors": event.errors, **event.rate}, event.rows)
    elif isinstance(event, TaskEvent):
        yield from _of_a_task(event)


def _of_a_task(event: TaskEvent) -> Iterator[Told]:
    if event.plan:
        yield Parameters(flat(f"{event.task}/plan", redact_fields(event.plan)))
    if event.ended:
        yield Note(name_of(event.task, "status"), event.state)
        if event.result:
            yield _metrics(event, flat("result", event.result), None)


def _metrics(event: Event, values: Mapping[str, Any], step: int | None) -> Metrics:
    numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    unit = "rows" if isinstance(event, Scored) or (isinstance(event, TaskEvent) and event.kind == "score") else "step"
    return Metrics({name_of(event.task, name): value for name, value in numbers.items()}, f"{event.task}/{unit}", step)


def flat(prefix: str, value: Any) -> dict[str, Any]:
    """Leaves of nested mappings by path, without nulls. A list of named things is a mapping; another list stays whole, as text."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {name: leaf for key, item in value.items() for name, leaf in flat(name_of(prefix, _word(str(key))), item).items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, Mapping) and "name" in item for item in value):
            return flat(prefix, {item["name"]: item for item in value})
        return {prefix: str(value)}
    return {prefix: value}


def name_of(prefix: str, name: str) -> str:
    """The path `prefix/name` in words that every tracker accepts."""
    return "/".join(_word(word) for word in f"{prefix}/{name}".split("/"))[:LONGEST_NAME].rstrip("/")


def _word(text: str) -> str:
    """One word of a path. MLflow refuses words that a file system would not keep: empty ones, `.` and `..`."""
    word = _UNUSUAL.sub("_", text)
    return "_" if word.strip(".") == "" else word
