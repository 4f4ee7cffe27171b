"""Chats -> text, with the character spans that the assistant wrote: which template, and how its spans are found.

Three ways, in this order: `{% generation %}` markers in the template itself; TRL's marked twin of a well-known template; prefixes
(what the template adds for a turn is that turn), which needs a template that renders earlier turns the same whatever follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import is_template_path
from tuneyard.data.roles import BadSample, Chat
from tuneyard.storage import NotFound, is_local, open_store

# Ends turns with the tokenizer's own end token, so that engines stop there without being told.
DEFAULT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>\\n' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{% generation %}{{- message['content'] + eos_token }}{% endgeneration %}{{- '\\n' }}"
    "{%- else %}{{- message['content'] + '\\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"
)
_ANOTHER_TEMPLATE = "give a chat template that takes such chats (data.chatTemplate), or change their system turns, tools or order"
_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class ChatTemplate:
    """`text` is Jinja. `origin`: where it comes from, for people. `replaces`: the tokenizer should carry `text` from now on."""

    text: str
    origin: str
    marked: bool
    replaces: bool


@dataclass(frozen=True)
class Rendered:
    """`spans`: [start, end) in characters of `text`, one per turn that carries loss, in order."""

    text: str
    spans: tuple[tuple[int, int], ...]


def choose_template(tokenizer: Any, given: str | None) -> ChatTemplate:
    """The template to train with: `given` (Jinja or a path), else the tokenizer's (marked, if one can be had), else the default.

    Raises BadInput for a path that is not there.
    """
    if given is not None:
        text = template_text(given)
        return ChatTemplate(text, "data.chatTemplate", bool(_MARKER.search(text)), True)
    if tokenizer.chat_template is None:
        if tokenizer.eos_token is None:
            raise BadInput("the tokenizer has neither a chat template nor an end token", "set data.chatTemplate")
        return ChatTemplate(DEFAULT_TEMPLATE, "tuneyard's default: the tokenizer has none", True, True)
    own = str(tokenizer.get_chat_template())
    if _MARKER.search(own):
        return ChatTemplate(own, "the tokenizer's own", True, False)
    twin = _marked_twin(tokenizer)
    if twin is not None:
        return ChatTemplate(twin, "the tokenizer's own, with TRL's assistant markers", True, False)
    return ChatTemplate(own, "the tokenizer's own; assistant turns found by prefixes", False, False)


def template_text(given: str) -> str:
    """Jinja, given as such or as the path or URI of a file. Raises BadInput where that file cannot be read."""
    if not is_template_path(given):
        return given
    if not is_local(given):
        folder, _, name = given.rpartition("/")
        try:
            return open_store(folder).get(name).decode()
        except NotFound as error:
            raise BadInput(f"data.chatTemplate: {error.cause}", "check the URI") from error
    try:
        return Path(given).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"data.chatTemplate: {given}: {error.strerror}", "give Jinja text, or a path to a file that holds it") from error


def _marked_twin(tokenizer: Any) -> str | None:
    """TRL keeps marked twins of well-known templates (Llama 3, Qwen, Gemma, …); it refuses templates that it does not know."""
    from trl.chat_template_utils import get_training_chat_template

    try:
        twin = get_training_chat_template(tokenizer)
    except ValueError:
        return None
    return str(twin) if twin and _MARKER.search(twin) else None


def render(chat: Chat, template: ChatTemplate, special_tokens: dict[str, Any], *, need_spans: bool, last_only: bool = False) -> Rendered:
    """Render a chat. `last_only`: only the last assistant turn carries loss.

    Raises BadSample where the template refuses the chat, BadInput where it cannot say which text is the assistant's.
    """
    import jinja2
    from transformers.utils.chat_template_utils import render_jinja_template

    def text_of(messages: list[dict[str, Any]], *, prompt: bool = False, spans: bool = False) -> tuple[str, list[tuple[int, int]]]:
        texts, found = render_jinja_template(
            conversations=[messages],
            tools=chat.tools,
            chat_template=template.text,
            return_assistant_tokens_mask=spans,
            add_generation_prompt=prompt,
            **special_tokens,
        )
        return texts[0], [(int(a), int(b)) for a, b in found[0]] if spans else []

    try:
        text, spans = text_of(chat.messages, spans=need_spans and template.marked)
        if need_spans and not template.marked:
            spans = _spans_by_prefix(chat, text, text_of)
    except (jinja2.exceptions.TemplateError, TypeError, KeyError) as error:
        raise BadSample(f"the chat template refuses it: {error}", _ANOTHER_TEMPLATE) from error
    if need_spans:
        spans = _of_turns_with_loss(chat, spans, last_only=last_only)
    return Rendered(text, tuple(spans))


def _of_turns_with_loss(chat: Chat, spans: list[tuple[int, int]], *, last_only: bool) -> list[tuple[int, int]]:
    turns = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    if last_only:
        return spans[-1:]
    if chat.context == 0:
        return spans
    if len(spans) != len(turns):
        raise BadSample(f"the chat template marks {len(spans)} spans for {len(turns)} assistant turns", _ANOTHER_TEMPLATE)
    return [span for turn, span in zip(turns, spans, strict=True) if turn >= chat.context]


def _spans_by_prefix(chat: Chat, whole: str, text_of: Any) -> list[tuple[int, int]]:
    spans = []
    for turn, message in enumerate(chat.messages):
        if message["role"] != "assistant":
            continue
        before = text_of(chat.messages[:turn], prompt=True)[0]
        after = text_of(chat.messages[: turn + 1])[0]
        if not whole.startswith(after) or not after.startswith(before):
            raise BadInput(
                "the chat template renders turns differently when others follow, so the assistant's tokens cannot be told apart",
                "set data.chatTemplate to one that puts {% generation %} … {% endgeneration %} around assistant turns, or data.lossOn: all",
            )
        spans.append((len(before), len(after)))
    return spans
