"""The value at a path, in the JSON that a text is, or that a fence or a sentence of it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Steps = tuple[str | int, ...]
_PATH = re.compile(r"(?:[^.\[\]]+|\[-?\d{1,9}\])(?:\.[^.\[\]]+|\[-?\d{1,9}\])*")
_STEP = re.compile(r"\[(-?\d+)\]|([^.\[\]]+)")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_MOST_STARTS = 200
"""Brackets of a text at which JSON is looked for."""


def path_of(path: str) -> Steps:
    """Names and places of `result.steps[0].answer`. Raises ValueError."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} is no path of JSON: write names with dots between them and places in brackets, as in result.steps[0]")
    return tuple(int(place) if place else name for place, name in _STEP.findall(path))


def value_at(text: str, steps: Steps) -> str | None:
    """The value as text: a text as it is, other values as compact JSON. None: no JSON in the text has it, or it is null.

    The whole text is tried first, then its fences from the last one on, then the objects and lists in it from the last one on.
    """
    for value in _values(text):
        found = _at(value, steps)
        if found is not None:
            said = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            return said.strip() or None
    return None


def _values(text: str) -> Iterator[Any]:
    for part in (text, *reversed(_FENCE.findall(text))):
        try:
            yield json.loads(part)
        except (ValueError, RecursionError):
            continue
    decoder, inside, found = json.JSONDecoder(), 0, []
    for start in [match.start() for match in re.finditer(r"[{\[]", text)][-_MOST_STARTS:]:
        if start < inside:
            continue
        try:
            value, inside = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        found.append(value)
    yield from reversed(found)


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value
