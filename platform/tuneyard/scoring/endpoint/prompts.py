"""Prompts for an endpoint: chat messages, or plain text where `data.chat` is false. The endpoint applies its own chat template."""

from __future__ import annotations

from typing import Any

from tuneyard.data.canonical import system_turn
from tuneyard.data.control_tokens import NONE, Spelled
from tuneyard.scoring.endpoint.request import ChatPrompt
from tuneyard.scoring.prompts import BadRow, Likelihood
from tuneyard.scoring.thoughts import opens_thoughts


class EndpointPrompts:
    """See `exchange.Prompts`."""

    def __init__(self, *, chat: bool | None) -> None:
        """`chat` None: chats, the form that every endpoint takes."""
        self.chats = chat is not False

    def prompt(self, value: str | list[dict[str, Any]], *, system: str = "", tools: list[Any] | None = None) -> str | ChatPrompt:
        """Text, or messages with tools. Raises BadRow."""
        if isinstance(value, str):
            if not value.strip():
                raise BadRow("the prompt is empty")
            messages = [*system_turn(system), {"role": "user", "content": value.strip()}]
            return ChatPrompt(messages, tools) if self.chats else value
        if not self.chats:
            raise BadRow("the prompt is a list of messages, and data.chat is false")
        if value[-1]["role"] == "assistant":
            raise BadRow("the prompt ends with a turn of the assistant: move the answer to the reference column")
        return ChatPrompt(value if value[0]["role"] == "system" else [*system_turn(system), *value], tools)

    def take_spelled(self) -> Spelled:
        """None: the endpoint has the tokenizer."""
        return NONE

    def tokens_of(self, prompt: str | ChatPrompt) -> int:  # noqa: ARG002 - as the protocol asks
        """0: the endpoint counts."""
        return 0

    def opens_thoughts(self, prompt: str | ChatPrompt) -> bool | None:
        """None for chats: the endpoint renders them."""
        return opens_thoughts(prompt) if isinstance(prompt, str) else None

    def likelihood(self, *_: Any, **__: Any) -> Likelihood:
        """Raises BadRow: endpoints give no likelihood of a given text (refused by the rule endpoint-likelihood)."""
        raise BadRow("an endpoint gives no likelihood of the reference")

    def continuation(self, *_: Any, **__: Any) -> Likelihood:
        """Raises BadRow, as `likelihood`."""
        raise BadRow("an endpoint gives no likelihood of a choice")
