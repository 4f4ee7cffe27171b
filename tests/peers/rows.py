"""Rows of each format that people have, for the comparison of tokens with other trainers."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]

_USER = {"role": "user", "content": "the cat sat"}
_ANSWER = {"role": "assistant", "content": "on a mat"}
_USER_2 = {"role": "user", "content": "and the red birds?"}
_ANSWER_2 = {"role": "assistant", "content": "sang old songs"}
_SYSTEM = {"role": "system", "content": "be brief"}
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "its name"}}, "required": ["city"]},
    },
}


def _call(arguments: Any) -> dict[str, Any]:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


_RESULT = {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "rain"}
_RAIN = {"role": "user", "content": "rain in Graz?"}
_YES = {"role": "assistant", "content": "yes, take a coat"}

CHATS: dict[str, Rows] = {
    "chat": [{"messages": [_USER, _ANSWER]}],
    "chat, several turns": [{"messages": [_USER, _ANSWER, _USER_2, _ANSWER_2]}],
    "chat, system": [{"messages": [_SYSTEM, _USER, _ANSWER]}],
    "ShareGPT": [{"conversations": [{"from": "human", "value": "the cat sat"}, {"from": "gpt", "value": "on a mat"}]}],
    "tools, arguments as objects": [{"messages": [_RAIN, _call({"city": "Graz"}), _RESULT, _YES], "tools": [_TOOL]}],
    "tools, arguments as text": [{"messages": [_RAIN, _call('{"city": "Graz"}'), _RESULT, _YES], "tools": [_TOOL]}],
    "prompt and completion as messages": [{"prompt": [_USER], "completion": [_ANSWER]}],
}
"""Rendered by a chat template."""
TEXTS: dict[str, Rows] = {
    "prompt and completion": [{"prompt": "the cat sat", "completion": " on a mat"}],
    "prompt and completion, joined inside a word": [{"prompt": "the cat s", "completion": "at on a mat"}],
    "Alpaca": [{"instruction": "say where the cat sat", "input": "", "output": "on a mat"}],
    "Alpaca with input": [{"instruction": "say where it sat", "input": "the cat sat on a mat", "output": "on a mat"}],
    "text": [{"text": "the cat sat on a mat"}],
}
"""Not rendered."""
PAIRS: dict[str, Rows] = {
    "preference": [{"prompt": "the cat sat", "chosen": " on a mat", "rejected": " on two hills"}],
    "preference as messages": [{"prompt": [_USER], "chosen": [_ANSWER], "rejected": [_ANSWER_2]}],
    "preference, whole dialogues": [{"chosen": [_USER, _ANSWER], "rejected": [_USER, _ANSWER_2]}],
    "preference, HH": [
        {"chosen": "\n\nHuman: the cat sat\n\nAssistant: on a mat", "rejected": "\n\nHuman: the cat sat\n\nAssistant: on two hills"}
    ],
}
