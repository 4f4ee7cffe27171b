"""What a chat template does with tools, found by rendering one call: no list of templates is complete.

Most templates take the arguments of a call as an object; some join them to a text and need JSON; some leave calls, tools or the answers of
tools out without an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from tuneyard.data.jinja_text import jinja_text
from tuneyard.data.tool_calls import Message

REFUSALS = (ValueError, TypeError, KeyError, AttributeError, LookupError, ArithmeticError, MemoryError, RecursionError)
"""Beside jinja2's own errors: the expressions of a template raise whatever Python raises."""
_MARK, _OTHER_MARK, _KEY, _TOOL = "tuneyardvalue", "tuneyardother", "tuneyardkey", "tuneyard_tool"
_SPECIAL: dict[str, Any] = {name: f"<{name}>" for name in ("bos_token", "eos_token", "pad_token", "unk_token")}


@dataclass(frozen=True)
class ToolForm:
    """What a chat template does with tools.

    `arguments`: the form in which it writes the arguments of a call; None: it leaves calls out, or refuses them.
    `schemas`: it shows the model the tools that it may call. `results`: it shows the model what a tool has answered. `names`, `beside`,
    `several`: it writes the name of a call, a call beside a content, each of several calls in a turn.
    """

    arguments: Literal["object", "text"] | None
    schemas: bool
    results: bool
    names: bool
    beside: bool
    several: bool

    def lacks(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> str | None:
        """The first part of a chat that the template would leave out."""
        if tools and not self.schemas:
            return "tools"
        calling = [message for message in messages if message.get("tool_calls")]
        if calling and self.arguments is None:
            return "tool calls"
        if calling and not self.names:
            return "names of tool calls"
        if not self.beside and any(message["content"].strip() for message in calling):
            return "tool calls beside a content"
        if not self.several and any(len(message["tool_calls"]) > 1 for message in calling):
            return "some of several tool calls in a turn"
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
    form = arguments or "object"
    alone = _rendered(template, [question, _call(form)], refused=_TOOL)
    beside = _rendered(template, [question, _call(form, content="said")], refused=_MARK)
    several = _rendered(template, [question, _call(form, _MARK, _OTHER_MARK)], refused=_MARK + _OTHER_MARK)
    return ToolForm(
        arguments,
        schemas=_TOOL in _rendered(template, [question], tools=[schema]),
        results=str(answer["content"]) in with_answer,
        names=_TOOL in alone,
        beside=_MARK in beside,
        several=_MARK in several and _OTHER_MARK in several,
    )


def _call(form: str, *values: str, content: str = "") -> Message:
    calls = []
    for number, value in enumerate(values or (_MARK,)):
        arguments = {_KEY: value}
        function = {"name": _TOOL, "arguments": json.dumps(arguments) if form == "text" else arguments}
        calls.append({"id": f"abcdefgh{number}", "type": "function", "function": function})
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _rendered(template: str, messages: list[Message], *, tools: list[Any] | None = None, refused: str = "") -> str:
    """The text, or `refused` where the template takes no such chat: then it says so itself, for each sample."""
    import jinja2

    try:
        return jinja_text(template, messages, tools=tools, **_SPECIAL)[0]
    except (jinja2.exceptions.TemplateError, *REFUSALS):
        return refused


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
