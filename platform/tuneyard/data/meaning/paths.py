"""Paths to values inside rows: `body.messages`, `answers.text[0]`. A column whose name holds a dot or a bracket wins over a path."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tuneyard.api import BadInput

_STEPS = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<number>-?\d+)\]|(?P<dot>\.)")
_DEEPEST, _MOST_LEAVES = 6, 200
_LONGEST_LITERAL = 4 << 20
"""Characters of Python's text of a value. Its parser takes a hundred times as much memory."""


@lru_cache(maxsize=256)
def steps_of(path: str) -> tuple[str | int, ...]:
    """The steps of a path: names and numbers of items. Raises BadInput where a bracket is not closed, or a name is missing."""
    steps: list[str | int] = []
    end = 0
    for match in _STEPS.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        if match["name"] is not None:
            steps.append(match["name"])
        elif match["number"] is not None:
            steps.append(int(match["number"]))
    if end != len(path) or not steps or path.endswith(".") or ".." in path:
        raise BadInput(
            f"data.columns: {path} is not a path", "write it like answers.text[0]: names with dots, numbers of items in brackets"
        )
    return tuple(steps)


def is_path(name: str) -> bool:
    return "." in name or "[" in name


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None where a part of it is missing. JSON text of objects and lists on the way is parsed."""
    if path in row or not is_path(path):
        return row.get(path)
    return _walk(row, steps_of(path), [])


def what_is_missing(row: Mapping[str, Any], path: str) -> str:
    """Why a path gives no value: `answers is null`, `body has no part mesages: its parts are messages, model`."""
    if not is_path(path) or path in row:
        return f"{path} is missing"
    trail: list[str] = []
    _walk(row, steps_of(path), trail)
    return f"{path} is missing: {trail[0]}" if trail else f"{path} is missing"


def _walk(value: Any, steps: Sequence[str | int], trail: list[str], place: str = "") -> Any:
    """The value behind `steps`; None, with the reason in `trail`, where there is none."""
    while steps:
        value = structured(value)
        step = steps[0]
        if isinstance(step, int):
            if not isinstance(value, list):
                trail.append(f"{place} is {described(value)}")
                return None
            if not -len(value) <= step < len(value):
                trail.append(f"{place} has {len(value)} item{'' if len(value) == 1 else 's'}")
                return None
            value, steps, place = value[step], steps[1:], f"{place}[{step}]"
            continue
        if not isinstance(value, Mapping):
            trail.append(f"{place} is {described(value)}")
            return None
        names = [step]
        for following in steps[1:]:
            if isinstance(following, int):
                break
            names.append(following)
        taken = next((count for count in range(len(names), 0, -1) if ".".join(names[:count]) in value), 0)
        if not taken:
            parts = ", ".join(map(str, list(value)[:8])) or "none"
            trail.append(f"{place} has no part {step}: its parts are {parts}" if place else f"no column {step}")
            return None
        name = ".".join(names[:taken])
        value, steps, place = value[name], steps[taken:], f"{place}.{name}" if place else name
    return value


def structured(value: Any) -> Any:
    """The value, parsed where it is text of an object or a list: JSON, or Python's text, which `str()` and pandas' CSV write."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if len(value) > _LONGEST_LITERAL:
        return value
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def leaves(value: Mapping[str, Any], *, depth: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """The innermost values of a row with their paths; at most 200 of them. Lists are values."""
    left = _MOST_LEAVES
    for path, each in _leaves(value, "", depth):
        yield path, each
        left -= 1
        if not left:
            return


def _leaves(value: Mapping[str, Any], place: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        path = f"{place}.{name}" if place else str(name)
        inner = structured(each)
        if isinstance(inner, Mapping) and inner and depth > 1:
            yield from _leaves(inner, path, depth - 1)
        else:
            yield path, each


def described(value: Any) -> str:
    """What a value is, for people: `null`, `text`, `a list of 2 objects`, `an object with the parts a, b`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        parts = [str(name) for name in value]
        return f"an object with the parts {', '.join(parts[:6])}{', …' if len(parts) > 6 else ''}" if parts else "an empty object"
    if isinstance(value, (list, tuple)):
        kinds: dict[type[Any], str] = {str: "texts", dict: "objects", list: "lists"}
        kind = kinds.get(type(value[0]), "values") if value else ""
        return f"a list of {len(value)} {kind if len(value) != 1 else kind.removesuffix('s')}" if value else "an empty list"
    return f"a value of type {type(value).__name__}"


def shown(value: Any, longest: int = 40) -> str:
    """A value as a short JSON text, for messages."""
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, float) else repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
