"""One sentence per pydantic error, in the terms of a JobSpec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuneyard.api.base import LOCATED
from tuneyard.api.loading_yaml import Path

_BOUNDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below", "less_than_equal": "at most"}
_TYPES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text (quote it)",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a group of `key: value` lines",
    "model_type": "a group of `key: value` lines",
    "model_attributes_type": "a group of `key: value` lines",
}


@dataclass(frozen=True)
class _Complaint:
    path: Path
    branch: bool
    """Whether the error is about one of several forms of the value (`auto`, a number, a group)."""
    error: ErrorDetails


def explain(error: ValidationError, model: type[BaseModel], value: Any) -> list[tuple[Path, str]]:
    """Path and reason of each wrong field, in the order of pydantic. `value` is the validated input of `model`."""
    complaints = [_complaint(details, value) for details in error.errors(include_url=False)]
    found: dict[Path, list[ErrorDetails]] = {}
    for complaint in complaints:
        deeper = any(c.branch and len(c.path) > len(complaint.path) and c.path[: len(complaint.path)] == complaint.path for c in complaints)
        if complaint.branch and deeper:
            continue  # the value has another form, whose own complaints help
        found.setdefault(complaint.path, []).append(complaint.error)
    return [(path, _reason(errors, path, model)) for path, errors in found.items()]


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that `word` is probably a misspelling of."""
    by_lower = {name.lower().replace("_", "").replace("-", ""): name for name in known}
    close = get_close_matches(str(word).lower().replace("_", "").replace("-", ""), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` (did you mean x?)`, or empty if no known word is near."""
    best = nearest(word, known)
    return f" (did you mean {best}?)" if best is not None else ""


def _complaint(details: ErrorDetails, value: Any) -> _Complaint:
    """pydantic's location, without the names of union branches that pydantic inserts."""
    path: list[str | int] = []
    branch = False
    here = value
    for index, part in enumerate(details["loc"]):
        if _holds(here, part):
            here = here[part]
        elif not (details["type"] == "missing" and index == len(details["loc"]) - 1):
            branch = True
            continue
        path.append(part)
    if details["type"] == LOCATED:
        path += details["ctx"]["path"]
    return _Complaint(tuple(path), branch, details)


def _holds(value: Any, part: str | int) -> bool:
    return (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int) and part < len(value))


def _reason(errors: list[ErrorDetails], path: Path, model: type[BaseModel]) -> str:
    # A value of the right type with an invalid content.
    own = [error for error in errors if error["type"] in ("value_error", LOCATED, *_BOUNDS)]
    if len(errors) == 1 or own:
        return _single((own or errors)[0], path, model)
    allowed: list[str] = []
    for error in errors:
        allowed += _allowed(error) or [_TYPES.get(error["type"], "")]
    words = list(dict.fromkeys(word for word in allowed if word))
    given = errors[0]["input"]
    if not words or not isinstance(given, (str, int, float, bool, list, dict, type(None))):
        return "; ".join(dict.fromkeys(_single(error, path, model) for error in errors))
    return f"expected {_either(words)}; found {_show(given)}{did_you_mean(given, [w for e in errors for w in _allowed(e)])}"


def _single(error: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown field{_suggest_field(path, model)}"
    if kind == "missing":
        return "required field is missing"
    if kind in ("literal_error", "enum"):
        allowed = _allowed(error)
        return f"{_show(given)} is none of: {', '.join(allowed)}{did_you_mean(given, allowed)}"
    if kind in _TYPES:
        return f"expected {_TYPES[kind]}; found {_show(given)}{_as_meant(given, kind, path, model)}"
    if kind == LOCATED:
        return str(context["reason"])
    if kind in ("value_error", "assertion_error"):
        return error["msg"].partition(", ")[2]
    if kind == "string_pattern_mismatch":
        return f"{_show(given)} does not match {_in_words(str(context.get('pattern')))}"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty" if context.get("min_length") == 1 else f"needs at least {context.get('min_length')} entries"
    if kind in _BOUNDS:
        limit = context.get("gt", context.get("ge", context.get("lt", context.get("le"))))
        return f"must be {_BOUNDS[kind]} {limit:g}; found {_show(given)}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}; found {_show(given)}"


def _as_meant(given: Any, kind: str, path: Path, model: type[BaseModel]) -> str:
    """`; write sku: [cpu]` for a word where a list of words belongs, `; write method: {full: {}}` for the name of a group in a group."""
    if not isinstance(given, str) or re.fullmatch(r"[\w.-]+", given) is None:
        return ""
    groups = list(_groups_at(model, path))
    if kind == "list_type" and not groups:
        return f"; write {path[-1]}: [{given}]"
    if any(name == given and any(_models(annotation)) for group in groups for name, annotation in _fields(group)):
        return f"; write {path[-1]}: {{{given}: {{}}}}"
    return ""


def _allowed(error: ErrorDetails) -> list[str]:
    expected = str(error.get("ctx", {}).get("expected", "")) if error["type"] in ("literal_error", "enum") else ""
    return [text or number for text, number in re.findall(r"'([^']*)'|(\d+)", expected)]


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _in_words(pattern: str) -> str:
    if pattern.startswith("^[a-z0-9]([-a-z0-9]"):
        return "a Kubernetes name: lower-case letters, digits and '-' inside"
    if ":" in pattern and pattern.startswith("^[A-Za-z_]"):
        return "module:object, such as captions:Captions"
    if pattern.startswith("^[A-Za-z_]"):
        return "the name of a variable: letters, digits and '_', no digit first"
    return pattern


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        names = [name if str(name).isidentifier() else repr(name) for name in list(value)[:3]]
        return f"a group ({', '.join(names)})" if value else "an empty group"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _suggest_field(path: Path, model: type[BaseModel]) -> str:
    """The nearest field of the same group, else the same name one group further in or out."""
    unknown = str(path[-1])
    group = list(_groups_at(model, path[:-1]))
    names = [name for candidate in group for name, _ in _fields(candidate)]
    best = nearest(unknown, names)
    if best is not None:
        return f" (did you mean {best}?)"
    for candidate in group:
        for name, annotation in _fields(candidate):
            if any(unknown == inner for child in _models(annotation) for inner, _ in _fields(child)):
                return f" (did you mean {name}.{unknown}?)"
    for length in range(len(path) - 2, -1, -1):
        outer = [name for candidate in _groups_at(model, path[:length]) for name, _ in _fields(candidate)]
        if unknown in outer:
            return f" ({unknown} belongs {'one group' if length == len(path) - 2 else 'some groups'} further out)"
    return f"; known here: {', '.join(names)}" if names else ""


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, info in model.model_fields.items():
        yield info.alias or name, info.annotation


def _groups_at(model: type[BaseModel], path: Path) -> Iterator[type[BaseModel]]:
    """The models at `path`: several if a value has several forms."""
    if not path:
        yield model
        return
    if isinstance(path[0], int):
        yield from _groups_at(model, path[1:])  # list items have the type that _models has already unwrapped
        return
    for name, annotation in _fields(model):
        if name == path[0]:
            for child in _models(annotation):
                yield from _groups_at(child, path[1:])


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType, Annotated, list):
        for inner in get_args(annotation):
            yield from _models(inner)
