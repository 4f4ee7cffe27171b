"""The body of a request to an endpoint, by OpenAI's reference of chat completions and of (legacy) completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tuneyard.api import Endpoint, Generation
from tuneyard.scoring.endpoint.reply import Reply, read_reply

CHARACTERS_PER_TOKEN = 4.0
"""A rough guess for rate limits, until the endpoint has counted."""
_FIELDS = ("role", "content", "name", "tool_call_id")


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt of chat messages, and the tools that the model may call."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None

    def fields(self) -> dict[str, Any]:
        """Fields of the request. Arguments of calls become JSON text, as OpenAI's reference has them."""
        return {"messages": [_as_sent(message) for message in self.messages], **({"tools": self.tools} if self.tools else {})}


class Form(Protocol):
    """The form of all requests to an endpoint. `noun`, `field`: the endpoint in errors, and its field in the JobSpec. `limit_field`: its
    name for the limit of an answer's tokens. `usual_answer`: tokens of an answer before any is known."""

    @property
    def noun(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def limit_field(self) -> str: ...
    @property
    def usual_answer(self) -> float: ...

    def path(self, prompt: Any) -> str:
        """The path of a request below the endpoint's URL."""

    def body(self, prompt: Any, seed: int | None) -> dict[str, Any]:
        """The JSON of a request."""

    def guessed_tokens(self, prompt: Any) -> float:
        """Tokens of the prompt, guessed from its characters."""

    def read(self, prompt: Any, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply to a request."""

    def with_newer_limit(self) -> Form:
        """For endpoints that refuse `max_tokens`, as OpenAI's reasoning models do."""


@dataclass(frozen=True)
class RequestForm:
    """See `Form`: answers, by chat completions and completions."""

    endpoint: Endpoint
    generation: Generation
    limit_field: str = "max_tokens"
    noun: str = "the endpoint"
    field: str = "engine.endpoint"

    @property
    def usual_answer(self) -> float:
        return float(self.generation.max_tokens)

    def path(self, prompt: str | ChatPrompt) -> str:
        return "/completions" if isinstance(prompt, str) else "/chat/completions"

    def guessed_tokens(self, prompt: str | ChatPrompt) -> float:
        text = prompt if isinstance(prompt, str) else "".join(str(message.get("content") or "") for message in prompt.messages)
        return len(text) / CHARACTERS_PER_TOKEN

    def read(self, _: str | ChatPrompt, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return read_reply(status, headers, body)

    def body(self, prompt: str | ChatPrompt, seed: int | None) -> dict[str, Any]:
        """The JSON of a request. A text goes to completions, messages to chat completions."""
        wished = self.generation
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            **({"prompt": prompt} if isinstance(prompt, str) else prompt.fields()),
            "max_tokens" if isinstance(prompt, str) else self.limit_field: wished.max_tokens,
            "temperature": wished.temperature,
        }
        optional = {
            "top_p": wished.top_p if wished.top_p < 1 else None,
            "top_k": wished.top_k or None,
            "stop": wished.stop or None,
            "seed": seed,
            "response_format": _response_format(wished.json_schema) if isinstance(wished.json_schema, dict) else None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        for name, value in self.endpoint.body.items():
            if value is None:
                body.pop(name, None)
            else:
                body[name] = value
        return body

    def with_newer_limit(self) -> RequestForm:
        """For endpoints that refuse `max_tokens`, as OpenAI's reasoning models do."""
        return replace(self, limit_field="max_completion_tokens")


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A message with the fields that endpoints know."""
    sent = {name: message[name] for name in _FIELDS if message.get(name) is not None}
    sent.setdefault("content", None)
    calls = message.get("tool_calls")
    if not calls:
        return sent
    return {**sent, "tool_calls": [{**call, "function": _with_text(call["function"])} for call in calls]}


def _with_text(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    return function if isinstance(arguments, str) else {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}
