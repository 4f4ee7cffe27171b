"""Tool calls and tools of a chat in one canonical form.

The form is that of transformers' templates: `{"type": "function", "function": {"name": …, "arguments": {…}}}`, with arguments as an object.
Data sets also use OpenAI's form (arguments as JSON text), calls without the outer `function`, and JSON text of the whole list.
"""

from __future__ import annotations

import json
import math
from typing import Any

from tuneyard.data.json_text import parsed_json

Message = dict[str, Any]


def canonical_calls(value: Any) -> list[dict[str, Any]]:
    """The calls of a message in canonical form. Raises ValueError with the reason for people."""
    value = _parsed(value, "tool_calls")
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"tool_calls is {type(value).__name__}, not a list of calls")
    return [_canonical(call, f"tool_calls[{i}]") for i, call in enumerate(value)]


def _canonical(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise ValueError(f"{where} is {type(call).__name__}, not a call")
    function = call.get("function")
    if not isinstance(function, dict):
        function = call
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where} has no name")
    arguments = function.get("arguments", function.get("parameters"))
    arguments = _parsed(arguments, f"{where}: arguments") if arguments not in (None, "") else {}
    if not isinstance(arguments, dict):
        raise ValueError(f"{where}: arguments are {type(arguments).__name__}, not an object")
    if not _is_finite(arguments):
        raise ValueError(f"{where}: arguments hold a number that JSON does not allow, such as NaN or 1e400")
    more = {"id": call["id"]} if call.get("id") else {}
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def canonical_tools(value: Any) -> list[Any] | None:
    """The tools that a chat may call, from a list, or from JSON text of the list or of its items.

    Raises ValueError with the reason for people.
    """
    value = _parsed(value, "tools")
    if value in (None, "", [], {}):
        return None
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"tools is {type(value).__name__}, not a list of tools")
    tools = [_parsed(tool, f"tools[{i}]") for i, tool in enumerate(value)]
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise ValueError(f"tools[{i}] is {type(tool).__name__}, not an object")
    return tools


def _parsed(value: Any, what: str) -> Any:
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return parsed_json(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{what}: not JSON: {value[:60]!r}") from error
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
