"""Support of a chat template for tools, found by rendering test calls, because no list of templates is complete.

Most templates take the arguments of a call as an object. Some concatenate them with text, and need JSON. Some silently leave out calls,
tools or the answers of tools.
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
"""Errors that a template's expressions may raise besides jinja2's own errors."""
_MARK, _OTHER_MARK, _KEY, _TOOL = "tuneyardvalue", "tuneyardother", "tuneyardkey", "tuneyard_tool"
_SPECIAL: dict[str, Any] = {name: f"<{name}>" for name in ("bos_token", "eos_token", "pad_token", "unk_token")}


@dataclass(frozen=True)
class ToolForm:
    """The support of one template for tools.

    `arguments`: the form in which the template takes the arguments of a call; None: it leaves calls out, or refuses them.
    The other fields say whether the template writes a part of a chat. `schemas`: the tools that the model may call. `results`: the answers
    of tools. `names`: the names of calls. `beside`: a call in a turn with content. `several`: each of several calls in a turn.
    """

    arguments: Literal["object", "text"] | None
    schemas: bool
    results: bool
    names: bool
    beside: bool
    several: bool

    def lacks(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> str | None:
        """The name of the first part of a chat that the template leaves out; None where it writes all parts."""
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
        """The messages with arguments in the form that the template takes."""
        if self.arguments != "text":
            return messages
        return [
            message | {"tool_calls": [_with_text(call) for call in message["tool_calls"]]} if message.get("tool_calls") else message
            for message in messages
        ]


@lru_cache(maxsize=64)
def tool_form(template: str) -> ToolForm:
    """The tool form of a chat template, which is given as Jinja."""
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
    """The rendered text; `refused` where the template raises an error for this chat. It will then do so for each sample."""
    import jinja2

    try:
        return jinja_text(template, messages, tools=tools, **_SPECIAL)[0]
    except (jinja2.exceptions.TemplateError, *REFUSALS):
        return refused


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
