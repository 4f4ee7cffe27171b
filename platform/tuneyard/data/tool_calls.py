"""Tool calls in one form, whichever form their author used, and in the form that a chat template expects.

The form is that of transformers' templates: `{"type": "function", "function": {"name": …, "arguments": {…}}}`, with arguments as an object.
Data sets also hold OpenAI's (arguments as JSON text), calls without the outer `function`, and JSON text of the whole list. Most templates
take arguments as an object; some join them to a text and need JSON; some leave tool calls out without an error. Which, is found by
rendering one call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Message = dict[str, Any]
REFUSALS = (ValueError, TypeError, KeyError, AttributeError, LookupError, ArithmeticError, MemoryError, RecursionError)
"""Beside jinja2's own errors: the expressions of a template raise whatever Python raises."""
_MARK, _KEY, _TOOL = "tuneyardvalue", "tuneyardkey", "tuneyard_tool"
_SPECIAL = {name: f"<{name}>" for name in ("bos_token", "eos_token", "pad_token", "unk_token")}


@dataclass(frozen=True)
class ToolForm:
    """What a chat template does with tools.

    `arguments`: the form in which it writes the arguments of a call; None: it leaves calls out, or refuses them.
    `schemas`: it shows the model the tools that it may call. `results`: it shows the model what a tool has answered.
    """

    arguments: Literal["object", "text"] | None
    schemas: bool
    results: bool

    def lacks(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> str | None:
        """The first part of a chat that the template would leave out."""
        if tools and not self.schemas:
            return "tools"
        if self.arguments is None and any(message.get("tool_calls") for message in messages):
            return "tool calls"
        if not self.results and any(message["role"] == "tool" for message in messages):
            return "answers of tools"
        return None

    def of(self, messages: list[Message]) -> list[Message]:
        """The messages with arguments as the template expects them."""
        if self.arguments != "text":
            return messages
        return [
            message | {"tool_calls": [_with_text(call) for call in message["tool_calls"]]} if message.get("tool_calls") else message
            for message in messages
        ]


@lru_cache(maxsize=64)
def tool_form(template: str) -> ToolForm:
    """What a chat template, given as Jinja, does with tools."""
    question = {"role": "user", "content": "question"}
    rendered = {form: _rendered(template, [question, _call(form)]) for form in ("object", "text")}
    arguments: Literal["object", "text"] | None = None
    if _MARK in rendered["text"] and f'\\"{_KEY}' not in rendered["text"]:
        arguments = "text"
    if _MARK in rendered["object"] and f"{{'{_KEY}'" not in rendered["object"]:  # the latter is Python's text of a dict, not JSON
        arguments = "object"
    schema = {"type": "function", "function": {"name": _TOOL, "description": "d", "parameters": {"type": "object", "properties": {}}}}
    answer = {"role": "tool", "name": _TOOL, "tool_call_id": "abcdefghi", "content": "tuneyardanswer"}
    final = {"role": "assistant", "content": "answer"}
    dialogue = [question, _call(arguments or "object"), answer, final]
    with_answer = _rendered(template, dialogue, refused=str(answer["content"]))
    return ToolForm(arguments, _TOOL in _rendered(template, [question], tools=[schema]), str(answer["content"]) in with_answer)


def _call(form: str) -> Message:
    arguments = {_KEY: _MARK}
    function = {"name": _TOOL, "arguments": json.dumps(arguments) if form == "text" else arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]}


def _rendered(template: str, messages: list[Message], *, tools: list[Any] | None = None, refused: str = "") -> str:
    """The text, or `refused` where the template takes no such chat: then it says so itself, for each sample."""
    import jinja2
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template(conversations=[messages], tools=tools, chat_template=template, **_SPECIAL)
    except (jinja2.exceptions.TemplateError, *REFUSALS):
        return refused
    return str(texts[0])


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


# --- canonical form ---------------------------------------------------------------------------------------------------------------


def canonical_calls(value: Any) -> list[dict[str, Any]]:
    """Calls of a message. Raises ValueError with the reason for people."""
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
    more = {"id": call["id"]} if call.get("id") else {}
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def canonical_tools(value: Any) -> list[Any] | None:
    """The tools that a chat may call: a list, or JSON text of it or of its items. Raises ValueError with the reason for people."""
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
        return json.loads(value)
    except RecursionError as error:
        raise ValueError(f"{what}: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{what}: not JSON: {value[:60]!r}") from error


def without_fillers(value: Any) -> Any:
    """Without the nulls that columnar files put into structs for keys that only other rows have."""
    if isinstance(value, dict):
        return {key: without_fillers(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_fillers(each) for each in value]
    return value
