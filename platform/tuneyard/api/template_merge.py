"""The merge of a ModelTemplate's defaults with a job's fields, field by field. Pure.

The job's values win. A list of the job replaces the template's list, except for `env`, whose variables are joined by name. For exclusive
fields (`name` and `from` of a model, `epochs` and `steps`), the field that the job gives replaces the template's, together with the
template's companion fields (`ALTERNATIVES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, get_args

from tuneyard.api.base import Fields
from tuneyard.api.data import ScoreData, Source, TrainData
from tuneyard.api.jobspec import Job
from tuneyard.api.rank import RankTask
from tuneyard.api.score import ScoreTask
from tuneyard.api.train import Method, ModelRef, Optimizer, TrainTask

TEMPLATED: Mapping[str, type[Fields]] = {"train": TrainTask, "score": ScoreTask, "rank": RankTask}
"""Kinds of tasks for which a template has defaults."""


@dataclass(frozen=True)
class Alternatives:
    """Exclusive fields, and `companions`, which belong to the value of one of them."""

    fields: tuple[str, ...]
    companions: tuple[str, ...] = ()

    def gives_way(self, below: Mapping[str, Any], given: Mapping[str, Any]) -> set[str]:
        """Fields of a template's `below` that conflict with a job's `given`: both give an alternative, and the two differ."""
        own, other = ({name: values[name] for name in self.fields if values.get(name) not in (None, [])} for values in (given, below))
        if not own or not other or own == other:
            return set()
        if own.keys() == other.keys() and all(isinstance(value, Mapping) for value in own.values()):
            return set()  # both give the same group of fields, which is merged
        return {*self.fields, *self.companions} - given.keys()


_PLACE = Alternatives(
    ("source", "from", "mix"),
    ("path", "split", "fileType", "columns", "roles", "template", "sheet", "limit", "temperature", "whenExhausted"),
)
_HELD_OUT = Alternatives(("validation", "validationFraction"))
_LENGTH = Alternatives(("epochs", "steps"))
ALTERNATIVES: Mapping[type[Fields], tuple[Alternatives, ...]] = {
    Method: (Alternatives(("full", "lora", "qlora", "dora")),),
    ModelRef: (Alternatives(("name", "from"), ("path", "revision", "init", "trustRemoteCode")),),
    Source: (_PLACE,),
    ScoreData: (_PLACE,),
    TrainData: (_PLACE, _HELD_OUT, Alternatives(("workers", "service"))),
    TrainTask: (_LENGTH, Alternatives(("objective",), ("preference",))),
    RankTask: (_LENGTH, _HELD_OUT),
    Optimizer: (Alternatives(("name",), ("states", "betas", "epsilon")),),
}


def merged(below: Mapping[str, Any], above: Mapping[str, Any], model: type[Fields] | None) -> dict[str, Any]:
    """`above`, with unset fields taken from `below`. A null counts as unset, as for an API server."""
    given = {key: value for key, value in above.items() if value is not None}
    groups = ALTERNATIVES.get(model, ()) if model is not None else ()
    gone = {name for group in groups for name in group.gives_way(below, given)}
    result = {key: deepcopy(value) for key, value in below.items() if key not in gone}
    for key, value in given.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            result[key] = merged(known, value, _group(model, key))
        elif model is Job and key == "env" and isinstance(known, list) and isinstance(value, list):
            result[key] = _joined(known, value)
        else:
            result[key] = deepcopy(value)
    return result


def _joined(below: list[Any], above: list[Any]) -> list[Any]:
    names = [each.get("name") for each in above if isinstance(each, Mapping)]
    return [*(each for each in below if not (isinstance(each, Mapping) and each.get("name") in names)), *deepcopy(above)]


def _group(model: type[Fields] | None, key: str) -> type[Fields] | None:
    """The group of fields that a field can hold, if any."""
    if model is None:
        return None
    field = next((field for name, field in model.model_fields.items() if (field.alias or name) == key), None)
    return _first_group(field.annotation) if field is not None else None


def _first_group(annotation: Any) -> type[Fields] | None:
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        return annotation
    return next((found for each in get_args(annotation) if (found := _first_group(each)) is not None), None)
