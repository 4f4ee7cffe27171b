"""The size of a sample without a tokenizer: the characters of all that a template may render, tools, calls and reasoning among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tuneyard.data.answer_form import REASONING
from tuneyard.data.roles import Chat, Completion, Pair, Sample
from tuneyard.data.tool_calls import Message


def sample_size(sample: Sample) -> int:
    """Characters of a sample; of a pair, of the prompt with the longer answer, which is what a row is padded to."""
    match sample:
        case Chat(messages, tools):
            return _said(messages) + _written(tools)
        case Completion(prompt, completion):
            return len(prompt) + len(completion)
        case Pair(prompt, chosen, rejected, tools):
            return _said(prompt) + max(_said(chosen), _said(rejected)) + _written(tools)
        case _:
            return len(sample.text)


def _said(content: str | Sequence[Message]) -> int:
    return len(content) if isinstance(content, str) else sum(map(_turn, content))


def _turn(message: Message) -> int:
    return len(str(message.get("content") or "")) + len(str(message.get(REASONING) or "")) + _written(message.get("tool_calls"))


def _written(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str)) if value else 0
