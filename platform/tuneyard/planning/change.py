"""A change of a task: fields with new values, its description for people, and the changed question.

The description names every field that changes, and no other field changes. A person who edits the file accordingly asks exactly the
question that the search has answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.api.rules import flow_text
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.search import Search
from tuneyard.planning.site import Site, search_of

Fields = Mapping[str, Any]
"""Dotted field -> value, of the train task or `resources.workers`."""
WORKERS = "resources.workers"


@dataclass(frozen=True, kw_only=True)
class Question:
    """The input of `resolve`: a train task on `workers` devices of one kind."""

    task: TrainTask
    shape: ModelShape
    gpu: Gpu
    workers: int
    site: Site = field(default_factory=Site)

    def search(self) -> Search:
        """Raises BadInput for a setting that cannot work on the device."""
        return search_of(self.task, self.shape, self.gpu, self.workers, **self.site)

    def is_allowed(self) -> bool:
        """Whether the task, its device and its workers satisfy all rules about combinations."""
        task = Task.model_validate({"name": "task", "train": self.task, "resources": {"sku": [self.gpu.sku], "workers": self.workers}})
        return not check_task(task, device=self.gpu.device, model_type=self.shape.model_type)

    def fits(self) -> bool:
        """Whether the rules allow the question and a plan fits."""
        try:
            return self.is_allowed() and self.search().fits_at_all()
        except BadInput:
            return False

    def differing(self, fields: Fields) -> dict[str, Any]:
        """The entries of `fields` whose value differs from the task's."""
        values = self.task.model_dump(by_alias=True) | {"strategy": self.task.layout.model_dump(by_alias=True)}
        return {name: value for name, value in fields.items() if (self.workers if name == WORKERS else _value(values, name)) != value}

    def changed(self, fields: Fields) -> Question:
        """The question with these fields set. Unset fields stay unset. Raises ValidationError for a value out of a field's bounds."""
        values = self.task.model_dump(by_alias=True, exclude_unset=True)
        for name, value in fields.items():
            if name != WORKERS:
                _set(values, name, value)
        return replace(self, task=TrainTask.model_validate(values), workers=fields.get(WORKERS, self.workers))


@dataclass(frozen=True, kw_only=True)
class Change:
    """`purpose`: why, where the fields do not show it. `asked`: the question after the change."""

    purpose: str
    fields: Fields
    asked: Question

    @property
    def words(self) -> str:
        settings = [f"{name} to {flow_text(value)}" for name, value in self.fields.items()]
        listed = " and ".join(filter(None, [", ".join(settings[:-1]), *settings[-1:]]))
        return ": ".join(filter(None, [self.purpose, f"set {listed}" if listed else ""]))


def change(question: Question, fields: Fields, purpose: str = "") -> Change | None:
    """The change that sets `fields`, with only the fields that differ from the task. None if no field differs or a value is out of
    bounds.
    """
    named = question.differing(fields)
    if not named:
        return None
    try:
        return Change(purpose=purpose, fields=named, asked=question.changed(named))
    except ValidationError:
        return None


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        if not isinstance(values.get(group), dict):
            values[group] = {}  # `strategy: auto`
        values = values[group]
    values[last] = value
