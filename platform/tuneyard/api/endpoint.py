"""An endpoint with OpenAI's API, as the engine of a score task."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuneyard.api.base import RAY_TOKEN_VARIABLES, Fields
from tuneyard.api.quantities import Duration

_VARIABLE = r"^[A-Z_][A-Z0-9_]*$"
Variable = Annotated[str, StringConstraints(pattern=_VARIABLE, max_length=253)]
_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
"""An expression of a Schedule, which has blanks. The job of each run holds its value, and is checked again."""
FIXED = ("messages", "prompt", "stream", "n", "response_format")
"""Fields of a request that `body` cannot set: scoring depends on them."""


class TokenPrice(Fields):
    """Price of a million tokens, in your currency."""

    input: float = Field(ge=0, description="a million tokens of prompts")
    output: float = Field(ge=0, description="a million tokens of answers")


class Endpoint(Fields):
    """A server with OpenAI's API. It answers instead of engines of the job, which then needs no GPU."""

    url: str = Field(
        min_length=1,
        max_length=2048,
        description="base URL, with https:// or http:// and usually /v1; requests go to URL/chat/completions, or to URL/completions where "
        "data.chat is false",
    )
    model: str = Field(min_length=1, max_length=512, description="name of the model at the endpoint")
    api_key_variable: Variable | None = Field(
        default=None,
        description="environment variable that holds the API key, such as OPENAI_API_KEY; the job gets it from a Secret by spec.env; "
        "default: requests without a key",
    )
    at_once: int = Field(default=32, ge=1, le=10_000, description="requests in flight, at most, all instances together")
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="requests per minute, all instances together; default: no limit"
    )
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="tokens of prompts and answers per minute, all instances together; default: no limit"
    )
    timeout: Duration = Field(default=600.0, gt=0, description="longest wait for one answer; the request is then sent again")
    patience: Duration = Field(
        default=1800.0,
        ge=0,
        description="time without any answer (refused for load, not reachable) after which the task fails; committed parts are kept",
    )
    price: TokenPrice | None = Field(default=None, description="price of tokens, for the cost in the report; default: no cost is reported")
    body: dict[str, Any] = Field(
        default_factory=dict,
        max_length=100,
        description="fields added to each request, such as {reasoning_effort: low}; null removes one that Tuneyard sends",
    )

    @field_validator("url")
    @classmethod
    def _is_plain(cls, url: str) -> str:
        """The URL stands in reports and plans, so it must not hold secrets. Errors do not quote it for the same reason."""
        filled = _EXPRESSION.sub("1", url)  # a digit may stand in a host, a port and a path
        if any(character.isspace() or not character.isprintable() for character in filled):
            raise ValueError("a URL has no blanks and control characters")
        try:
            parts = urlsplit(filled)
            port_is_valid = parts.port is None or parts.port > 0
        except ValueError:
            raise ValueError("this is no URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
            raise ValueError("give a URL such as https://api.example.com/v1")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("the URL stands in reports: name a variable with the key in apiKeyVariable, and leave out user, ? and #")
        return url.rstrip("/")

    @field_validator("api_key_variable", mode="before")
    @classmethod
    def _is_no_key(cls, value: Any) -> Any:
        """A key in the place of its variable's name is refused without being quoted."""
        if isinstance(value, str) and re.fullmatch(_VARIABLE, value) is None:
            raise ValueError("give the name of an environment variable in capitals, such as OPENAI_API_KEY, never the key itself")
        if isinstance(value, str) and value.startswith(RAY_TOKEN_VARIABLES):
            raise ValueError("this variable is the attempt's own: choose another name")
        return value

    @model_validator(mode="after")
    def _leaves_requests_whole(self) -> Self:
        fixed = sorted(set(FIXED) & set(self.body))
        if fixed:
            raise ValueError(f"body cannot set {', '.join(fixed)}: scoring sets it")
        return self
