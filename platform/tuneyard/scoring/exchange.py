"""The requests to an engine, its answers, and the protocol of engines: vLLM's (`engine`), and endpoints (`endpoint.engine`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tuneyard.data.control_tokens import Spelled
from tuneyard.scoring.prompts import Likelihood
from tuneyard.scoring.rows import Paid


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request samples, in place of the task's `generation`. `top_k` 0: all tokens. Texts of `stop` may be control tokens."""

    max_tokens: int
    stop: list[str]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float


@dataclass(frozen=True, slots=True)
class Generate:
    """A request for an answer. `prompt`: as the engine's `Prompts` made it. `seed`: makes sampling repeatable. `sampling`: of this request;
    its answer then has `output_ids`."""

    key: Any
    prompt: Any
    seed: int | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A request for the likelihood of tokens. `greedy`: also whether they are the model's likeliest ones."""

    key: Any
    tokens: Likelihood
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. To a Generate: text, finish_reason, output_tokens. To an Evaluate: nll, in nats. Or the request's error."""

    key: Any
    latency_s: float
    text: str | None = None
    finish_reason: str | None = None
    output_tokens: int = 0
    nll: float | None = None
    greedy: bool | None = None
    """Whether each token that counts is the likeliest one, where the request asks for it."""
    output_ids: tuple[int, ...] | None = None
    """The tokens of the answer, end tokens included, where the request has settings of its own."""
    error: str | None = None
    input_tokens: int | None = None
    """Tokens of the prompt by an endpoint's count; None: counted before (`Prompts.tokens_of`)."""
    vectors: tuple[tuple[float, ...], ...] | None = None
    """Embeddings of the texts of the request."""
    reasoning: str | None = None
    """The model's thoughts, where an endpoint has told them apart from the text."""
    by_stop_text: bool = False
    """The answer ended at a text of `generation.stop`, as far as the engine tells."""
    paid: Paid | None = None
    """Of an endpoint: the tokens that it counted for this request, failed tries included."""


Asked = Generate | Evaluate


class Engine(Protocol):
    """Answers requests while new ones arrive. Only one thread at a time may use it."""

    @property
    def in_flight(self) -> int:
        """Number of requests that are not answered yet."""

    def run(self, requests: Iterator[Asked | None]) -> Iterator[Answer]:
        """Answer all `requests`, in the order in which they finish. The iterator yields None while it has no request; it may block only
        while `in_flight` is 0. Raises the engine's error if it cannot go on."""

    def close(self) -> None:
        """Release what the engine holds outside this process."""


class Prompts(Protocol):
    """Turns the values of prompt and reference columns into an engine's form. Not safe to use from two threads at once."""

    @property
    def chats(self) -> bool:
        """Whether prompts are chats."""

    def prompt(self, value: str | list[dict[str, Any]], *, system: str = "", tools: list[Any] | None = None) -> Any:
        """The prompt. `system` and `tools` are used where prompts are chats. Raises BadRow."""

    def take_spelled(self) -> Spelled:
        """The control tokens that prompts have spelled since the last call."""

    def tokens_of(self, prompt: Any) -> int:
        """Number of tokens of a prompt; 0 where only the engine can count them."""

    def opens_thoughts(self, prompt: Any) -> bool | None:
        """Whether the prompt ends in the middle of thoughts (see `thoughts`); None where only the engine knows."""

    def likelihood(
        self, value: str | list[dict[str, Any]], reference: str, *, system: str = "", tools: list[Any] | None = None
    ) -> Likelihood:
        """Tokens of prompt and reference, for the reference's likelihood. Raises BadRow."""

    def continuation(self, value: str | list[dict[str, Any]], text: str, *, system: str = "", tools: list[Any] | None = None) -> Likelihood:
        """Tokens of a prompt and a text right behind it, for the text's likelihood. Raises BadRow."""
