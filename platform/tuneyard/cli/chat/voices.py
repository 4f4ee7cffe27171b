"""Who answers in a chat: a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tuneyard.cli.chat.loaded import LoadedModel
    from tuneyard.scoring.generation import Generator

Prompt = str | list[dict[str, Any]]
Write = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """How answers are sampled (see `Generator.answer`), and the tools that the chat template shows."""

    max_tokens: int
    temperature: float
    seed: int | None
    tools: Sequence[Any] = ()


class Voice(Protocol):
    """Answers prompts: a text, or the messages of a chat where `chats`."""

    @property
    def chats(self) -> bool: ...

    def answer(self, prompt: Prompt, write: Write, asked: Asked) -> str:
        """The whole answer; `write` gets it piece by piece. Raises BadInput or JobFailed."""


class Voices(Protocol):
    """The tuned model and its base. Both raise BadInput where there is none."""

    def tuned(self) -> Voice: ...

    def base(self) -> Voice: ...


@dataclass(frozen=True)
class LocalVoice:
    """A model in this process. `adapted` false: without its adapter."""

    generator: Generator
    adapted: bool = True

    @property
    def chats(self) -> bool:
        return self.generator.chats

    def answer(self, prompt: Prompt, write: Write, asked: Asked) -> str:
        return self.generator.answer(
            prompt,
            write,
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            seed=asked.seed,
            tools=asked.tools,
            adapted=self.adapted,
        )


class LocalVoices:
    """A loaded model with its base: the same weights without the adapter, or weights that are loaded when they are asked for."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model

    def tuned(self) -> LocalVoice:
        return LocalVoice(self._model.generator)

    def base(self) -> LocalVoice:
        if self._model.generator.has_adapter:
            return LocalVoice(self._model.generator, adapted=False)
        return LocalVoice(self._model.base())
