"""Rows become token ids for the engine, by the code and the rules of training.

A prompt is text, or a list of chat messages. Where prompts are chats (`data.prompts_are_chats`), a text becomes one message of a user, and
the template opens the assistant's turn. For perplexity, the reference follows the prompt as in training: as the assistant's turn of the
rendered chat, or as the completion after the prompt's own tokens, with the end token. Only tokens with loss in training count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.data import ControlTokens
from tuneyard.data.borders import continued_tokens
from tuneyard.data.canonical import system_turn
from tuneyard.data.chat import choose_template, prompt_text
from tuneyard.data.control_tokens import NONE, Controls, Spelled, cut_at_seams
from tuneyard.data.messages import BadSample
from tuneyard.data.prompt_form import prompts_are_chats, templated
from tuneyard.data.roles import Chat, Completion
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import IGNORED, Encoder, plain_tokens
from tuneyard.data.turns import turn_end
from tuneyard.scoring.thoughts import CLOSE, OPEN, opens_thoughts

_UNLIMITED = 2**31 - 1
_LONGEST_OPENING = 16
"""Tokens that `<think>` and white space behind it have, at most."""


class BadRow(ValueError):
    """A row that the engine cannot take. The message is the reason, and becomes the row's `error`."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Tokens of prompt and reference. `counted[i]`: the likelihood of token i, given the tokens before it, counts."""

    ids: list[int]
    counted: list[bool]


class PromptEncoder:
    """Turns the values of prompt and reference columns into tokens. Not safe to use from two threads at once."""

    def __init__(
        self, tokenizer: Any, *, chat: bool | None, max_length: int, control_tokens: ControlTokens = "text", templated: bool = True
    ) -> None:
        """`chat` None: as in the model's training (`data.prompts_are_chats`). `templated`: texts are whole prompts, and not filled into the
        template of the training. Raises BadInput if `chat` is true without a template.
        """
        if chat and tokenizer.chat_template is None:
            raise BadInput(
                "data.chat is true, but the model's tokenizer has no chat template", "remove data.chat, or give the tokenizer one"
            )
        self._tokenizer = tokenizer
        self._chat = chat if chat is not None else prompts_are_chats(tokenizer)
        self._max_length = max_length
        self._control_tokens = control_tokens
        self._templated = templated
        self._spelled = NONE

    @property
    def chats(self) -> bool:
        """Whether prompts are rendered by the chat template."""
        return self._chat

    @property
    def ends(self) -> list[int]:
        """Tokens that end an answer in addition to the end tokens of tokenizer and model: the template's, where prompts are chats."""
        end = turn_end(self._tokenizer) if self._chat else None
        return [] if end is None else [end]

    def prompt(self, value: str | list[dict[str, Any]], *, system: str = "", tools: list[Any] | None = None) -> list[int]:
        """Tokens of the prompt. `system` and `tools` are used where prompts are chats. Raises BadRow."""
        content = self._content(value, system)
        ids = self._plain(content) if isinstance(content, str) else self._ids(*self._rendered(content, tools))
        if not ids:
            raise BadRow("the prompt is empty")
        if len(ids) >= self._max_length:
            raise BadRow(
                f"the prompt has {len(ids)} tokens; with one to generate, engine.maxLength {self._max_length} allows {self._max_length - 1}"
            )
        return ids

    def take_spelled(self) -> Spelled:
        """The control tokens that prompts have spelled since the last call."""
        spelled, self._spelled = self._spelled, NONE
        return spelled

    def tokens_of(self, prompt: list[int]) -> int:
        """Number of tokens of a prompt."""
        return len(prompt)

    def opens_thoughts(self, prompt: list[int]) -> bool:
        """Whether the prompt ends in the middle of thoughts, which the chat template or its author has opened."""
        return opens_thoughts(self._tokenizer.decode(prompt[-_LONGEST_OPENING:]))

    def likelihood(
        self, value: str | list[dict[str, Any]], reference: str, *, system: str = "", tools: list[Any] | None = None
    ) -> Likelihood:
        """Tokens of prompt and reference, for the reference's likelihood. Raises BadRow."""
        content = self._content(value, system)
        if self._chat and isinstance(value, str):
            reference = reference.strip()  # as in training, where pairs of texts become chats
        sample = (
            Completion(content, reference)
            if isinstance(content, str)
            else Chat([*content, {"role": "assistant", "content": reference}], tools, context=len(content))
        )
        encoded = self._encoder.encode([Placed("row", sample)])
        self._spelled |= Spelled(frozenset(encoded.as_text), frozenset(encoded.as_tokens))
        if not encoded.ids:
            reason = encoded.bad[0][1] if encoded.bad else "no token of the reference carries loss"
            raise BadRow(f"the reference cannot be scored: {reason}")
        ids, counted = encoded.ids[0].tolist(), (encoded.labels[0] != IGNORED).tolist()
        if len(ids) >= self._max_length:
            raise BadRow(f"prompt and reference have {len(ids)} tokens; engine.maxLength {self._max_length} allows {self._max_length - 1}")
        return Likelihood(ids, counted)

    def continuation(self, value: str | list[dict[str, Any]], text: str, *, system: str = "", tools: list[Any] | None = None) -> Likelihood:
        """Tokens of a prompt and a text right behind it, for the text's likelihood, without an end token. Raises BadRow.

        Prompt and text are tokenised together, as lm-evaluation-harness does, and white space at the prompt's end counts as the text's: the
        text's tokens are those beyond the number of the prompt's. In chats the text follows the opening of the assistant's turn.
        """
        content = self._content(value, system)
        if isinstance(content, str):
            context, ids = len(self._plain(content.rstrip())), self._plain(content + text)
        else:
            prompt, sealed = self._rendered(content, tools)
            context, ids = len(self._ids(prompt, sealed)), self._ids(prompt + text, sealed)
        if not context:
            raise BadRow("the prompt is empty")
        if len(ids) <= context:
            raise BadRow(f"the tokenizer has no token of its own for the choice {text.strip()[:80]!r} behind the prompt")
        if len(ids) >= self._max_length:
            raise BadRow(f"prompt and choice have {len(ids)} tokens; engine.maxLength {self._max_length} allows {self._max_length - 1}")
        return Likelihood(ids, [place >= context for place in range(len(ids))])

    def check_likelihood(self) -> None:
        """Raises BadInput where no reference can follow a prompt, with thoughts or without: templates may open thoughts, and leave those of
        answers out."""
        if not self._chat:
            return
        why, of_any_length = "", PromptEncoder(self._tokenizer, chat=True, max_length=_UNLIMITED)
        for reference in ("yes", f"{OPEN}\nso\n{CLOSE}\n\nyes"):
            try:
                of_any_length.likelihood("is it?", reference)
            except BadRow as error:
                why = why or str(error)
            else:
                return
        raise BadInput(
            f"perplexity cannot be measured under the chat template of the model: {why}", "leave perplexity out of score.metrics"
        )

    @cached_property
    def _encoder(self) -> Encoder:
        template = choose_template(self._tokenizer, None) if self._chat else None
        if template is not None and self._tokenizer.chat_template is not None:
            template = replace(template, own=str(self._tokenizer.get_chat_template()))  # its opening of an answer is part of the prompt
        return Encoder(
            self._tokenizer,
            loss="completion",
            max_length=_UNLIMITED,
            overlong="error",
            template=template,
            control_tokens=self._control_tokens,
        )

    @cached_property
    def _controls(self) -> Controls:
        template = str(self._tokenizer.get_chat_template()) if self._chat else None
        return Controls.of(self._tokenizer, template, self._control_tokens)

    def _content(self, value: str | list[dict[str, Any]], system: str) -> str | list[dict[str, Any]]:
        """Text where prompts are plain, messages where they are chats."""
        if isinstance(value, str):
            value = value if self._templated else templated(self._tokenizer, value)
            return [*system_turn(system), {"role": "user", "content": value.strip()}] if self._chat else value
        if not self._chat:
            plain = "data.chat is false, or the model was trained on plain prompts"
            why = plain if self._tokenizer.chat_template else "the model has no chat template"
            raise BadRow(f"the prompt is a list of messages, and {why}")
        if value[-1]["role"] == "assistant":
            raise BadRow("the prompt ends with a turn of the assistant: move the answer to the reference column")
        return value if value[0]["role"] == "system" else [*system_turn(system), *value]

    def _rendered(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> tuple[str, bool]:
        """The text of messages, and whether it has seams (`control_tokens`)."""
        with _bad_rows():
            chat, spelled = self._controls.seal(Chat(messages, tools))
            self._spelled |= spelled
            return prompt_text(chat.messages, self._tokenizer, chat.tools), bool(spelled.as_text)

    def _ids(self, rendered: str, sealed: bool) -> list[int]:
        if not sealed:
            return list(self._tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"])
        text, _, cuts = cut_at_seams(rendered)
        pieces = [(text[start:end], start > 0) for start, end in pairwise(sorted({0, *cuts, len(text)}))]
        return [token for ids, _ in continued_tokens(self._tokenizer, pieces, offsets=False) for token in ids]

    def _plain(self, text: str) -> list[int]:
        with _bad_rows():
            self._spelled |= self._controls.look_at(text)
        [ids] = plain_tokens(self._tokenizer, [text])
        if ids and ids[-1] == self._tokenizer.eos_token_id:
            ids.pop()  # some tokenizers end every text; an engine generates no token after it
        return ids


@contextmanager
def _bad_rows() -> Iterator[None]:
    """A bad sample is a bad row."""
    try:
        yield
    except BadSample as error:
        raise BadRow(f"{error}") from error
