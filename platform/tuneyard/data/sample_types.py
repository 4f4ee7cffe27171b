"""Samples in their canonical form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tuneyard.data.tool_calls import Message


@dataclass(frozen=True, slots=True)
class Chat:
    """A dialogue. The first `context` messages carry no loss: they are the prompt of a prompt-completion pair in messages."""

    messages: list[Message]
    tools: list[Any] | None = None
    context: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference: all three are texts, or all three are lists of messages, which may have tools."""

    prompt: str | list[Message]
    chosen: str | list[Message]
    rejected: str | list[Message]
    tools: list[Any] | None = None

    @property
    def halves(self) -> tuple[Chat, Chat] | tuple[Completion, Completion]:
        """The prompt with the chosen answer, and with the rejected one. Only the answers carry loss."""
        if isinstance(self.prompt, str):
            return Completion(self.prompt, str(self.chosen)), Completion(self.prompt, str(self.rejected))
        chosen, rejected = ([*self.prompt, *answer] for answer in (self.chosen, self.rejected) if not isinstance(answer, str))
        return Chat(chosen, self.tools, len(self.prompt)), Chat(rejected, self.tools, len(self.prompt))


Sample = Chat | Completion | Text | Pair
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def canonical_json(sample: Sample) -> str:
    """The sample as text, equal for equal samples. Duplicates and the validation split are decided by it."""
    fields = [type(sample).__name__, *(getattr(sample, name) for name in sample.__slots__)]  # asdict() would copy every message
    return _JSON.encode(fields)
