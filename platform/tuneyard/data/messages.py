"""Messages of a chat in canonical form: roles by their usual names, contents as text, tool calls as objects, weights of turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuneyard.data.json_text import HALF_CHARACTER, has_half_character
from tuneyard.data.tool_calls import Message, canonical_calls

ROLE_NAMES = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "function": "tool",
    "observation": "tool",
}
ROLES = ("system", "developer", "user", "assistant", "tool")
"""Roles that every template is expected to know. Any other role must stand in the template itself."""
_CALL_ROLES = ("function_call", "tool_call")
"""ShareGPT's roles of an assistant turn that consists of a call, as JSON text."""
_KEPT = ("name", "tool_call_id")
_TEXT_PARTS = (None, "text", "input_text", "output_text")
"""OpenAI's names of text parts; Arrow fills in None."""
TEXT_ALONE = "models are tuned on text alone: images, sound and video would need the model's processor and its towers"
_WEIGHTS = ("weight", "train")
_REASONING = ("reasoning_content", "reasoning", "thinking")
"""The key of reasoning in data sets of DeepSeek and Qwen, of vLLM and OpenRouter, and of gpt-oss."""


class BadSample(ValueError):
    """A row that cannot be trained on. The message is the reason, for people; `advice` is the remedy where it is not to repair the row."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice


def looks_like_messages(value: Any) -> bool:
    value = unpacked(value)
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) and ("role" in m or "from" in m) for m in value)


def unpacked(value: Any) -> Any:
    """The value, parsed where it is a list as JSON text: CSV and some Parquet files keep messages so."""
    if isinstance(value, str) and value.lstrip().startswith(("[{", "[ {")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def message_list(value: Any, column: str) -> list[Message]:
    """Messages in canonical form, from a list or its JSON text. Raises BadSample with a reason that names `column`."""
    given, value = value, unpacked(value)
    if given is not value and has_half_character(value):
        raise BadSample(f"{column}: {HALF_CHARACTER}")
    if value is None:
        raise BadSample(f"{column} is missing")
    if not isinstance(value, list):
        raise BadSample(f"{column} is {type(value).__name__}, not a list of messages")
    if not value:
        raise BadSample(f"{column} is empty")
    return [_message(message, f"{column}[{i}]") for i, message in enumerate(value)]


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict):
        raise BadSample(f"{where} is {type(message).__name__}, not a message")
    if "role" not in message and "from" in message:
        message = {**message, "role": message["from"], "content": message.get("value")}
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise BadSample(f"{where} has no role")
    role, content, calls = role.strip().lower(), message.get("content"), message.get("tool_calls") or message.get("function_call")
    if role in _CALL_ROLES:
        role, content, calls = "assistant", "", calls or content
    role = ROLE_NAMES.get(role, role)
    try:
        calls = canonical_calls(calls) if calls else []
    except ValueError as error:
        raise BadSample(f"{where}.{error}") from error
    content = _text_of(content, where, may_be_missing=bool(calls))
    if role == "assistant" and not content.strip() and not calls:
        raise BadSample(f"{where}: the assistant says nothing")
    more = {key: message[key] for key in _KEPT if message.get(key)}
    if reasoning := _reasoning(message, role, where):
        more["reasoning_content"] = reasoning
    if calls:
        more["tool_calls"] = calls
    if _weight(message, where) == 0:
        more["weight"] = 0
    return {"role": role, "content": content} | more


def _text_of(content: Any, where: str, *, may_be_missing: bool) -> str:
    if isinstance(content, list):  # parts: [{"type": "text", "text": …}]
        for part in content:
            kind = part.get("type", "text") if isinstance(part, dict) else type(part).__name__
            if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
                raise BadSample(f"{where} holds something other than text ({kind}); {TEXT_ALONE}")
        content = "".join(part["text"] for part in content)
    if content is None and may_be_missing:
        return ""
    if not isinstance(content, str):
        raise BadSample(f"{where} has no content" if content is None else f"{where}: content is {type(content).__name__}, not text")
    return content


def _reasoning(message: Mapping[str, Any], role: str, where: str) -> str:
    found = [(key, message[key]) for key in _REASONING if message.get(key)]
    if len({str(value) for _, value in found}) > 1:
        raise BadSample(f"{where}: {' and '.join(key for key, _ in found)} differ")
    for key, value in found:
        if not isinstance(value, str):
            raise BadSample(f"{where}: {key} is {type(value).__name__}, not text")
        if role != "assistant":
            raise BadSample(f"{where}: {key} in a turn of the {role}; only turns of the assistant may have reasoning")
        return value if value.strip() else ""
    return ""


def _weight(message: Mapping[str, Any], where: str) -> int:
    """1, or 0 for a turn that must not be learned: OpenAI's `weight`, axolotl's `train`."""
    found = {key: message[key] for key in _WEIGHTS if message.get(key) is not None}
    for key, weight in found.items():
        if not isinstance(weight, (bool, int, float)) or weight not in (0, 1):
            raise BadSample(f"{where}: {key} is {weight!r}, neither 0 nor 1")
    if len(set(found.values())) > 1:
        raise BadSample(f"{where}: {' and '.join(f'{key} {value!r}' for key, value in found.items())} contradict each other")
    return int(next(iter(found.values()), 1))


def carries_loss(message: Message) -> bool:
    """Whether a message carries loss: an assistant's message does, unless its weight is 0."""
    return bool(message["role"] == "assistant" and message.get("weight", 1))
