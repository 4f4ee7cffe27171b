"""What can be read of an object that others have written: what breaks a rule is cut, or left out, and the rest counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

ModelT = TypeVar("ModelT", bound=BaseModel)
_ROUNDS = 8
_NAMED = 3


def salvaged(model: type[ModelT], value: Any) -> tuple[ModelT, str]:
    """`value` (None: nothing) as a model, and what of it could not be read, in words; empty where all could.

    Texts, lists and mappings that are too long are cut; other fields that break a rule are left to their defaults, and with them the item
    or group that cannot do without them. Raises ValidationError where nothing is left that `model` could be made of.
    """
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        return model.model_validate({}), "it is no mapping"
    try:
        return model.model_validate(value), ""
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))[:100]}: {each['msg'][:200]}" for each in error.errors(include_input=False)[:_NAMED]]
    rest: dict[str, Any] = deepcopy(dict(value))
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(rest), "; ".join(problems)
        except ValidationError as error:
            for each in reversed(error.errors(include_input=False)):  # of a list, the last items first: the places before stay theirs
                _mend(rest, each["loc"], each["type"], each.get("ctx") or {})
    return model.model_validate({}), "; ".join(problems)


def _mend(value: dict[str, Any], place: Sequence[int | str], kind: str, context: Mapping[str, Any]) -> None:
    """Cut what stands at `place`, or take it out; where it is missing, what it is missing from."""
    *above, last = place[:-1] if kind == "missing" and len(place) > 1 else place or ("",)
    holder: Any = value
    for step in above:
        try:
            holder = holder[step]
        except (KeyError, IndexError, TypeError):
            return  # taken out already
    most = context.get("max_length")
    try:
        if kind in ("string_too_long", "too_long") and isinstance(most, int):
            found = holder[last]
            holder[last] = dict(list(found.items())[:most]) if isinstance(found, dict) else found[:most]
        else:
            del holder[last]
    except (KeyError, IndexError, TypeError):
        return
