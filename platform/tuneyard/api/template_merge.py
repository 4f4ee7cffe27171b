"""Defaults and what a job says, field by field: the merge by which a ModelTemplate is filled in. Pure.

What the job says wins. A list of the job takes the place of the template's, but for `env`, whose variables are joined by name. Where two
fields exclude each other (`name` and `from` of a model, `epochs` and `steps`), the one that the job gives wins over both of the template
(`GIVES_WAY`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, get_args

from tuneyard.api.base import Fields
from tuneyard.api.data import ScoreData, Source, TrainData
from tuneyard.api.jobspec import Job
from tuneyard.api.rank import RankTask
from tuneyard.api.train import Method, ModelRef, TrainTask

_OF_SOURCE = ("source", "from", "mix", "path", "split", "fileType")
_SOURCE: Mapping[str, tuple[str, ...]] = {"source": _OF_SOURCE, "from": _OF_SOURCE, "mix": (*_OF_SOURCE, "columns", "limit")}
_HELD_OUT: Mapping[str, tuple[str, ...]] = {"validation": ("validationFraction",), "validationFraction": ("validation",)}
_LENGTH: Mapping[str, tuple[str, ...]] = {"epochs": ("steps",), "steps": ("epochs",)}
_METHODS = ("full", "lora", "qlora", "dora")
GIVES_WAY: Mapping[type[Fields], Mapping[str, tuple[str, ...]]] = {
    Method: dict.fromkeys(_METHODS, _METHODS),
    ModelRef: {"name": ("from", "path", "revision"), "from": ("name", "path", "revision")},
    Source: _SOURCE,
    ScoreData: _SOURCE,
    TrainData: {**_SOURCE, **_HELD_OUT, "workers": ("service",), "service": ("workers",)},
    TrainTask: _LENGTH,
    RankTask: {**_LENGTH, **_HELD_OUT},
}
"""Field that a job gives -> fields of the template that it leaves no place for, where the job does not give them too."""


def merged(below: Mapping[str, Any], above: Mapping[str, Any], model: type[Fields] | None) -> dict[str, Any]:
    """`above` with what it leaves out from `below`. A null leaves out, as for an API server."""
    given = {key: value for key, value in above.items() if value is not None}
    yields = GIVES_WAY.get(model, {}) if model is not None else {}
    gone = {other for key in given for other in yields.get(key, ())}
    result = {key: deepcopy(value) for key, value in below.items() if key not in gone or key in given}
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
    names = {each.get("name") for each in above if isinstance(each, Mapping)}
    return [*(each for each in below if not (isinstance(each, Mapping) and each.get("name") in names)), *deepcopy(above)]


def _group(model: type[Fields] | None, key: str) -> type[Fields] | None:
    """The group of fields that a field holds, where it can hold one."""
    if model is None:
        return None
    field = next((field for name, field in model.model_fields.items() if (field.alias or name) == key), None)
    return _first_group(field.annotation) if field is not None else None


def _first_group(annotation: Any) -> type[Fields] | None:
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        return annotation
    return next((found for each in get_args(annotation) if (found := _first_group(each)) is not None), None)
