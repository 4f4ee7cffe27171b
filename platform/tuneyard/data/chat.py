"""Chats -> text, with the character spans that the assistant wrote: which template, and how its spans are found.

Three ways, in this order: `{% generation %}` markers in the template itself; TRL's marked twin of a well-known template; prefixes
(what the template adds for a turn is that turn), which needs a template that renders earlier turns the same whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import is_template_path
from tuneyard.data.messages import BadSample, carries_loss
from tuneyard.data.roles import Chat
from tuneyard.data.time_limit import TooLong, within
from tuneyard.data.tool_calls import Message
from tuneyard.data.tool_form import REFUSALS, tool_form
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
_TEMPLATE_WITH_TOOLS = "set data.chatTemplate to one that takes tools, or take tools and tool calls out of the rows"
_RENDERS_WITHIN_S = 20.0
"""No template in use takes a second for a chat; a machine may be busy."""
_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class ChatTemplate:
    """`text` is Jinja. `origin`: where it comes from, for people. `replaces`: the tokenizer should carry `text` from now on."""

    text: str
    origin: str
    marked: bool
    replaces: bool

    def __str__(self) -> str:
        return f"the chat template ({self.origin.partition(';')[0]})"


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

    Raises BadSample where the template refuses the chat or leaves a part of it out, BadInput where it cannot say which text is the
    assistant's, has a syntax error or does not end.
    """
    text_of = _Rendering(template, special_tokens, chat.tools)
    text, spans = text_of(chat.messages, spans=need_spans and template.marked)
    if need_spans and not template.marked:
        spans = _spans_by_prefix(chat, text, text_of)
    if need_spans:
        spans = _of_turns_with_loss(chat, spans, last_only=last_only)
    return Rendered(text, tuple(spans))


def prompt_text(messages: list[Message], tokenizer: Any, tools: list[Any] | None = None) -> str:
    """A dialogue by the tokenizer's own template, up to where the assistant's next turn begins. Raises as `render`."""
    return _own(tokenizer, tools)(messages, prompt=True)[0]


def whole_text(messages: list[Message], tokenizer: Any) -> str:
    """A dialogue by the tokenizer's own template. Raises as `render`."""
    return _own(tokenizer, None)(messages)[0]


def _own(tokenizer: Any, tools: list[Any] | None) -> _Rendering:
    try:
        text = str(tokenizer.get_chat_template(tools=tools))
    except ValueError as error:
        raise BadSample("the tokenizer has several chat templates, and none is the default") from error
    return _Rendering(ChatTemplate(text, "the tokenizer's own", False, False), tokenizer.special_tokens_map, tools)


@dataclass(frozen=True)
class _Rendering:
    """Text and marked spans of messages. Raises as `render`."""

    template: ChatTemplate
    special_tokens: dict[str, Any]
    tools: list[Any] | None

    def __call__(self, messages: list[Message], *, prompt: bool = False, spans: bool = False) -> tuple[str, list[tuple[int, int]]]:
        import jinja2
        import transformers.utils.chat_template_utils  # noqa: F401  # before the clock starts: it can take longer than a template may

        try:
            return within(_RENDERS_WITHIN_S, lambda: self._render(self._as_expected(messages), prompt=prompt, spans=spans))
        except TooLong:
            reason = f"{self.template} has not come to an end within {_RENDERS_WITHIN_S:.0f} s"
            raise BadInput(reason, "look for a loop in it that does not end, or set data.chatTemplate") from None
        except BadSample:
            raise
        except jinja2.exceptions.TemplateSyntaxError as error:
            raise BadInput(f"{self.template}, line {error.lineno}: {error.message}", "correct it") from error
        except (jinja2.exceptions.TemplateError, *REFUSALS) as error:
            raise BadSample(f"the chat template refuses it: {error}", _ANOTHER_TEMPLATE) from error

    def _as_expected(self, messages: list[Message]) -> list[Message]:
        """Tool calls in the form that the template takes."""
        if not self.tools and not any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
            return messages
        form = tool_form(self.template.text)
        if lacking := form.lacks(messages, self.tools):
            raise BadSample(f"{self.template} leaves {lacking} out", _TEMPLATE_WITH_TOOLS)
        return form.of(messages)

    def _render(self, messages: list[Message], *, prompt: bool, spans: bool) -> tuple[str, list[tuple[int, int]]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        texts, found = render_jinja_template(
            conversations=[messages],
            tools=self.tools,
            chat_template=self.template.text,
            return_assistant_tokens_mask=spans,
            add_generation_prompt=prompt,
            **self.special_tokens,
        )
        return texts[0], [(int(a), int(b)) for a, b in found[0]] if spans else []


def _of_turns_with_loss(chat: Chat, spans: Sequence[tuple[int, int]], *, last_only: bool) -> list[tuple[int, int]]:
    turns = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    counted = [i for i in turns if i >= chat.context and carries_loss(chat.messages[i])]
    if last_only:
        return [*spans[-1:]] if counted[-1:] == turns[-1:] else []
    if counted == turns:
        return [*spans]
    if len(spans) != len(turns):
        raise BadSample(f"the chat template marks {len(spans)} spans for {len(turns)} assistant turns", _ANOTHER_TEMPLATE)
    return [span for turn, span in zip(turns, spans, strict=True) if turn in counted]


def _spans_by_prefix(chat: Chat, whole: str, text_of: _Rendering) -> list[tuple[int, int]]:
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
