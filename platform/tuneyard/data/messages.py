"""Messages of a chat in canonical form: roles by their usual names, contents as text, tool calls as objects, weights of turns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tuneyard.data.bad_sample import TEXT_ALONE, BadSample
from tuneyard.data.json_text import HALF_CHARACTER, has_half_character
from tuneyard.data.meaning.paths import described, structured
from tuneyard.data.meaning.role_names import is_filled, is_media
from tuneyard.data.notations.speakers import ALIASES, CALL_ROLES, ROLES
from tuneyard.data.notations.turns import joined_thoughts, looks_like_turn, plain_turns
from tuneyard.data.tool_calls import Message, canonical_calls

__all__ = ["ROLES", "TEXT_ALONE", "BadSample"]

Speakers = Mapping[str, str]
_NO_SPEAKERS: Speakers = MappingProxyType({})
_LIST = re.compile(r"\s*\[\s*[\[{]")
"""How the text of a list of turns begins."""
_KEPT = ("name", "tool_call_id")
_WEIGHTS = ("weight", "train")
_REASONING = ("reasoning_content", "reasoning", "thinking")
"""The key of reasoning in data sets of DeepSeek and Qwen, of vLLM and OpenRouter, and of gpt-oss."""
_PARTS = frozenset(("role", "content", "tool_calls", "function_call", "thought alone", *_KEPT, *_WEIGHTS, *_REASONING))


def looks_like_messages(value: Any) -> bool:
    """Whether a value of any column holds messages. Text does only where each object says who speaks: answers may be JSON."""
    turns = unpacked(value)
    if isinstance(value, str) and isinstance(turns, list):
        return bool(turns) and all(isinstance(turn, dict) and ("role" in turn or "from" in turn) for turn in turns)
    return isinstance(turns, list) and bool(turns) and all(map(looks_like_turn, turns))


def looks_like_dialogue(value: Any) -> bool:
    """Whether a value of a column that is named for messages holds turns, in any notation."""
    turns = unpacked(value)
    return isinstance(turns, list) and bool(turns) and all(map(looks_like_turn, turns))


def is_said(value: Any) -> bool:
    """Whether a value of any column is a message, or a list of messages."""
    return looks_like_messages(value) or (isinstance(value, Mapping) and looks_like_turn(value))


def unpacked(value: Any) -> Any:
    """The value as a list of turns where it holds one in another way: as text (of JSON, or of Python, which pandas' CSV files have), as an
    object of equally long lists (which `datasets` makes of lists of objects), or as the only item of a list.
    """
    if isinstance(value, str):
        if _LIST.match(value) is None:
            return value
        parsed = structured(value)
        value = parsed if isinstance(parsed, list) else value
    if isinstance(value, dict) and value and all(isinstance(each, list) for each in value.values()):
        lengths = {len(each) for each in value.values()}
        if len(lengths) == 1 and looks_like_turn({name: each[0] for name, each in value.items() if each}):
            return [dict(zip(value, each, strict=True)) for each in zip(*value.values(), strict=True)]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) and value[0] and isinstance(value[0][0], dict):
        return value[0]
    return value


def message_list(value: Any, column: str, speakers: Speakers = _NO_SPEAKERS) -> list[Message]:
    """Messages in canonical form, from a list of turns in any notation, or its text. `speakers`: roles by further names of speakers.

    Raises BadSample with a reason that names `column`.
    """
    given, value = value, unpacked(value)
    if given is not value and has_half_character(value):
        raise BadSample(f"{column}: {HALF_CHARACTER}")
    if value is None:
        raise BadSample(f"{column} is missing")
    if isinstance(value, dict) and looks_like_turn(value):
        value = [value]
    if not isinstance(value, list):
        raise _no_list(value, column)
    if not value:
        raise BadSample(f"{column} is empty")
    turns = [(f"{column}[{i}]", turn) for i, item in enumerate(value) for turn in plain_turns(item, f"{column}[{i}]")]
    if any("thought alone" in turn for _, turn in turns):
        turns = [(column, turn) for turn in joined_thoughts([turn for _, turn in turns])]
    return [_message(turn, where, speakers) for where, turn in turns]


def parts_left_out(value: Any) -> dict[str, Any]:
    """Parts of messages that are no part of a message in canonical form, such as `citations`, each with its first value that is not empty.
    Raises BadSample as `message_list`.
    """
    found: dict[str, Any] = {}
    for item in value if isinstance(value := unpacked(value), list) else [value]:
        for turn in plain_turns(item, ""):
            used = (turn.get("role"), turn.get("content"))
            for name, each in turn.items():
                if name not in _PARTS and is_filled(each) and each not in used:
                    found.setdefault(name, each)
    return found


def _no_list(value: Any, column: str) -> BadSample:
    if isinstance(value, dict) and all(isinstance(each, list) for each in value.values()):
        lengths = ", ".join(f"{name} {len(each)}" for name, each in value.items())
        return BadSample(f"{column} is an object of lists that are no turns ({lengths} items)")
    if isinstance(value, dict):
        return BadSample(f"{column} is {described(value)}, not a list of messages")
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        fault = "neither JSON nor Python's text of a list: numpy writes objects without commas, and shortens long lists"
        return BadSample(f"{column} holds {fault}", "write the column as JSON text: df[column] = df[column].map(list).map(json.dumps)")
    return BadSample(f"{column} is {type(value).__name__}, not a list of messages")


def _message(message: Message, where: str, speakers: Speakers) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise BadSample(f"{where} has no role")
    role, content, calls = role.strip(), message.get("content"), message.get("tool_calls") or message.get("function_call")
    role = speakers.get(role) or speakers.get(role.lower()) or role.lower()
    if role in CALL_ROLES:
        role, content, calls = "assistant", "", calls or content
    role = ALIASES.get(role, role)
    if media := [key for key, each in message.items() if each and is_media(key)]:
        raise BadSample(f"{where} has {media[0]}; {TEXT_ALONE}")
    try:
        calls = canonical_calls(calls) if calls else []
    except ValueError as error:
        raise BadSample(f"{where}.{error}") from error
    if role == "assistant" and not content and not calls and message.get("refusal"):
        raise BadSample(f"{where} has no content; the answer stands in refusal", "write it into content, or remove the row")
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


def system_text(value: Any, column: str) -> str:
    """The text of a system turn: a text, a list of text blocks, or a message. Empty where there is none. Raises BadSample for others."""
    if value in (None, "", [], {}) or value != value:
        return ""
    if isinstance(value, dict) and value.get("content", value.get("parts")) is not None:
        value = value.get("content", value.get("parts"))
    if isinstance(value, str):
        return value if value.strip() else ""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, (str, dict)) for item in items):
        raise BadSample(f"{column} is {type(value).__name__}, not text")
    said = message_list([{"role": "system", "content": items}], column)
    return str(said[0]["content"])


def unusual_roles(messages: list[Message]) -> list[str]:
    """Roles that are none of the usual ones, each once."""
    return list(dict.fromkeys(message["role"] for message in messages if message["role"] not in ROLES))


def carries_loss(message: Message) -> bool:
    """Whether a message carries loss: an assistant's message does, unless its weight is 0."""
    return bool(message["role"] == "assistant" and message.get("weight", 1))
