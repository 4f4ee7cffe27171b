"""The reader of objects that programs write: statuses and reports, of this version, an older or a newer one.

Objects that people write are strict: a JobSpec with an unknown field is refused. Objects that programs write are read as far as possible:

- Unknown fields, at any depth, are accepted, and written back unchanged.
- Texts, lists and mappings that are too long are cut.
- Any other invalid field gets its default. If it has none, its item or group is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from tuneyard.api.base import Fields, StatusFields

FieldsT = TypeVar("FieldsT", bound=Fields)
_ROUNDS = 8
_NAMED = 3
_CUT = ("string_too_long", "too_long")


@dataclass(frozen=True)
class Reading(Generic[FieldsT]):
    """`value`: the readable part. `problems`: the unreadable part, in words. `lost`: the first problem of a vital field."""

    value: FieldsT
    problems: str = ""
    lost: str = ""


def read(model: type[FieldsT], found: Any) -> Reading[FieldsT]:
    """`found` (None: empty) as a `model`. Raises ValidationError if too little is left to make one."""
    if found is None:
        found = {}
    if not isinstance(found, Mapping):
        return Reading(model.model_validate({}), "it is no mapping", "it is no mapping")
    try:
        return Reading(model.model_validate(found))
    except ValidationError as error:
        wrong = error.errors(include_input=False)
    problems = "; ".join(map(_in_words, wrong[:_NAMED]))
    vital = model.vital if issubclass(model, StatusFields) else frozenset()
    lost = next((_in_words(each) for each in wrong if _place(each["loc"]) in vital), "")
    return Reading(_mended(model, found), problems, lost)


def _mended(model: type[FieldsT], found: Mapping[str, Any]) -> FieldsT:
    rest: dict[str, Any] = deepcopy(dict(found))
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(rest)
        except ValidationError as error:
            for each in reversed(error.errors(include_input=False)):  # last items of a list first: earlier places stay valid
                _mend(rest, each["loc"], each["type"], each.get("ctx") or {})
    return model.model_validate({})


def _in_words(error: Any) -> str:
    return f"{'.'.join(map(str, error['loc']))[:100]}: {error['msg'][:200]}"


def _place(place: Sequence[int | str]) -> str:
    """A path as text, such as `attempts.*.token`."""
    return ".".join("*" if isinstance(step, int) else step for step in place)


def _mend(value: dict[str, Any], place: Sequence[int | str], kind: str, context: Mapping[str, Any]) -> None:
    """Cuts or removes the value at `place`; if a required field is missing there, removes its group."""
    *above, last = place[:-1] if kind == "missing" and len(place) > 1 else place or ("",)
    holder: Any = value
    for step in above:
        try:
            holder = holder[step]
        except (KeyError, IndexError, TypeError):
            return  # already removed
    most = context.get("max_length")
    try:
        if kind in _CUT and isinstance(most, int):
            found = holder[last]
            holder[last] = dict(list(found.items())[:most]) if isinstance(found, dict) else found[:most]
        else:
            del holder[last]
    except (KeyError, IndexError, TypeError):
        return
