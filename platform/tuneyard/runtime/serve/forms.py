"""How prompts of each served model are rendered: as in its training, and as `tuneyard generate` and score tasks do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.data.control_tokens import Controls
from tuneyard.data.prompt_form import template_of
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.scoring.prompts import PromptEncoder

_PROBES = ("Hello, world!", " 12 + 7 = 19\n\n", "Größe, naïve, 你好", "def f(x):\n    return x")
_ANY_LENGTH = 2**31 - 1


@dataclass(frozen=True)
class Form:
    """The prompts of one model.

    `template`: the chat template; empty where the model takes no chats, for the reason `why_plain`. `ends`: tokens that end an answer in
    chats, in addition to the end tokens that the engine knows.
    """

    template: str
    ends: list[int]
    why_plain: str = ""
    controls: str = ""
    """A pattern of the control tokens that a text of a user would spell."""
    made_by: str = ""
    """The template of columns (`data.template`) that made the prompts of the training."""

    @property
    def chats(self) -> bool:
        return not self.why_plain


def forms_of(folders: Mapping[str, Path], *, trust: bool) -> dict[str, Form]:
    """The form of each model, by the folders of their tokenizers. Raises BadInput where one cannot be read, and where they differ in more
    than their chat template: an engine has one tokenizer."""
    tokenizers = {name: read_tokenizer(folder, trust=trust) for name, folder in folders.items()}
    first, *others = tokenizers
    for name in others:
        if not _is_alike(tokenizers[first], tokenizers[name]):
            raise BadInput(f"{first} and {name} have different tokenizers, and an engine has one", "start a server for each of them")
    return {name: _form(tokenizer) for name, tokenizer in tokenizers.items()}


def _is_alike(one: Any, other: Any) -> bool:
    return bool(one.get_vocab() == other.get_vocab() and all(one(text)["input_ids"] == other(text)["input_ids"] for text in _PROBES))


def _form(tokenizer: Any) -> Form:
    prompts = PromptEncoder(tokenizer, chat=None, max_length=_ANY_LENGTH)
    made_by = template_of(tokenizer)
    if not prompts.chats:
        why = "its tokenizer has no chat template" if tokenizer.chat_template is None else "it was trained on plain prompts"
        return Form("", [], why, made_by=made_by)
    template = str(tokenizer.get_chat_template())
    controls = Controls.of(tokenizer, template).pattern
    return Form(template, prompts.ends, controls=controls.pattern if controls else "", made_by=made_by)
