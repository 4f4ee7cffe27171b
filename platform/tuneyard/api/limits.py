"""Limits of fields that declare no limit. A larger number, text or list is a mistake or an attack: it would overflow a float, or exceed the
size of an object in an API server.
"""

from __future__ import annotations

from typing import Any

LONGEST_TEXT = 65_536
LONGEST_MESSAGE = 4_096
"""Characters of a text in a status or report. An object with many such texts still fits into 1.5 MB, etcd's limit."""
MOST_ITEMS = 10_000
LARGEST_INTEGER = 2**53
"""The largest range of whole numbers that JSON readers keep exactly."""
LARGEST_NUMBER = 1e15
"""A product of several such numbers is still finite."""

MOST_WORKERS = 100_000
MOST_SECRETS = 16
"""Secrets that one job names: the hub looks each up while the job waits."""
MOST_GPUS_PER_NODE = 1024
MOST_CONTEXT_RANKS = 4096
MOST_ROWS_PER_STEP = 1_000_000_000

_SAME_SIDE = {"le": "lt", "ge": "gt"}


def limited(schema: Any, model: type, longest_text: int = LONGEST_TEXT) -> Any:
    """pydantic's core schema of `model` with a limit for each field without one. Nested models have their own limits."""
    if isinstance(schema, list | tuple):
        for item in schema:
            limited(item, model, longest_text)
    elif isinstance(schema, dict) and not (schema.get("type") == "model" and schema["cls"] is not model):
        for name, bound in _bounds(str(schema.get("type")), longest_text).items():
            if name not in schema and _SAME_SIDE.get(name) not in schema:
                schema[name] = bound
        for name, inner in schema.items():
            if name not in ("metadata", "serialization"):
                limited(inner, model, longest_text)
    return schema


def _bounds(kind: str, longest_text: int) -> dict[str, float]:
    if kind == "str":
        return {"max_length": longest_text}
    if kind in ("list", "dict"):
        return {"max_length": MOST_ITEMS}
    largest = {"int": LARGEST_INTEGER, "float": LARGEST_NUMBER}.get(kind)
    return {"le": largest, "ge": -largest} if largest is not None else {}
