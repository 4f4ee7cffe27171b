"""Chats become text, with the character spans of the assistant's turns.

Spans are found in one of three ways, tried in this order:
1. `{% generation %}` markers in the template itself;
2. TRL's marked twin of a well-known template;
3. prefixes: the text that the template adds for a turn is that turn. The template must render earlier turns the same, whichever turns
   follow.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import is_template_path
from tuneyard.data.answer_form import SWITCH, answer_form, reasoning_of
from tuneyard.data.jinja_text import jinja_text
from tuneyard.data.messages import BadSample
from tuneyard.data.prompt_template import original
from tuneyard.data.roles import Chat
from tuneyard.data.template_omissions import ANOTHER_TEMPLATE, check_shown
from tuneyard.data.time_limit import TimeExceeded, within
from tuneyard.data.tool_calls import Message
from tuneyard.data.tool_form import REFUSALS, tool_form
from tuneyard.data.turn_spans import counted_spans, spans_of_turns
from tuneyard.storage import NotFound, is_local, open_store

# Ends turns with the tokenizer's own end token, where engines stop without further settings.
DEFAULT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>\\n' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{% generation %}{{- message['content'] + eos_token }}{% endgeneration %}{{- '\\n' }}"
    "{%- else %}{{- message['content'] + '\\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"
)
_TEMPLATE_WITH_TOOLS = "set data.chatTemplate to one that takes tools, or take tools and tool calls out of the rows"
_RENDERS_WITHIN_S = 20.0
"""Time limit of one rendering. No known template takes a second for a chat; the rest is for busy machines."""
_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class ChatTemplate:
    """A template to train with. `text` is Jinja; `origin` names its source for people; `marked`: it has `{% generation %}` markers.

    `replaces`: the tokenizer is saved with `text` as its template. `own`: where `text` is a marked twin, the Jinja of the tokenizer's own
    template, which renders prompts.
    """

    text: str
    origin: str
    marked: bool
    replaces: bool
    own: str = ""

    @property
    def prompts(self) -> str:
        """The Jinja that renders prompts."""
        return self.own or self.text

    def __str__(self) -> str:
        return f"the chat template ({self.origin.partition(';')[0]})"


@dataclass(frozen=True)
class Rendered:
    """A chat as text. `spans`: [start, end) in characters of the turns that carry loss, in order.

    `muted`: number of turns without loss because the template leaves a part of them out where other turns follow. `reasons`, `tools`: the
    chat has reasoning, or tools. `sealed`: the text has seams (`control_tokens`).
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    muted: int = 0
    reasons: bool = False
    tools: bool = False
    sealed: bool = False


def choose_template(tokenizer: Any, given: str | None) -> ChatTemplate:
    """The template to train with: `given` (Jinja or a path), else the tokenizer's (its marked twin if there is one), else the default.

    Raises BadInput for a missing path.
    """
    if given is not None:
        text = template_text(given)
        return ChatTemplate(text, "data.chatTemplate", bool(_MARKER.search(text)), True)
    if tokenizer.chat_template is None:
        if tokenizer.eos_token is None:
            raise BadInput("the tokenizer has neither a chat template nor an end token", "set data.chatTemplate")
        return ChatTemplate(DEFAULT_TEMPLATE, "tuneyard's default: the tokenizer has none", True, True)
    own = original(str(tokenizer.get_chat_template()))
    if _MARKER.search(own):
        return ChatTemplate(own, "the tokenizer's own", True, False)
    twin = _marked_twin(tokenizer, own)
    if twin is not None:
        return ChatTemplate(twin, "the tokenizer's own, with TRL's assistant markers", True, False, own)
    return ChatTemplate(own, "the tokenizer's own; assistant turns found by prefixes", False, False)


def template_text(given: str) -> str:
    """The Jinja of a template, given as Jinja or as the path or URI of a file. Raises BadInput for a file that cannot be read."""
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


def _marked_twin(tokenizer: Any, own: str) -> str | None:
    """TRL's marked twin of a well-known template (Llama 3, Qwen, Gemma, …). None for a template that TRL does not know."""
    from trl import chat_template_utils as known

    if own not in {text for name, text in vars(known).items() if name.endswith("_chat_template")}:
        return None  # TRL would find this out by rendering, without a time limit
    if own != tokenizer.chat_template:
        tokenizer = copy.copy(tokenizer)
        tokenizer.chat_template = own
    try:
        twin = known.get_training_chat_template(tokenizer)
    except ValueError:
        return None
    return str(twin) if twin and _MARKER.search(twin) else None


def render(chat: Chat, template: ChatTemplate, special_tokens: dict[str, Any], *, need_spans: bool, last_only: bool = False) -> Rendered:
    """Render a chat. `last_only`: only the last assistant turn carries loss.

    Raises BadSample where the template refuses the chat or leaves a part of it out. Raises BadInput for a template that has a syntax
    error, does not end, or renders text in which the assistant's turns cannot be found.
    """
    reasons = any(reasoning_of(message) for message in chat.messages)
    tools = bool(chat.tools) or any(message["role"] == "tool" or message.get("tool_calls") for message in chat.messages)
    text_of = _Rendering(template.text, str(template), special_tokens, chat.tools, thinking=reasons)
    text, marks = text_of(chat.messages, spans=need_spans and template.marked)
    if not need_spans:  # here a template may hide earlier turns on purpose
        check_shown([m for m in chat.messages if m["role"] == "system" or m is chat.messages[-1]], text, template, template.text)
        return Rendered(text, (), reasons=reasons, tools=tools)
    turns = sum(message["role"] == "assistant" for message in chat.messages)
    if template.marked and turns and not marks:
        raise BadSample(f"{template} marks no answer with {{% generation %}}", ANOTHER_TEMPLATE)
    spans = spans_of_turns(marks, turns) if template.marked else _spans_by_prefix(chat, text, text_of)
    check_shown(chat.messages, text, template, template.text, spans)

    def prompts_of(turn: int) -> list[str]:
        asks = (replace(text_of, text=template.prompts, thinking=thinking) for thinking in (True, False))
        try:
            return [ask(chat.messages[:turn], prompt=True)[0] for ask in asks]
        except BadSample:
            return []  # the template refuses such a prompt: nothing to compare with

    form = answer_form(template.prompts, special_tokens)
    counted = counted_spans(chat, text, spans, form, prompts_of, last_only=last_only)
    return Rendered(text, counted.spans, counted.muted, reasons, tools)


def prompt_text(messages: list[Message], tokenizer: Any, tools: list[Any] | None = None) -> str:
    """A dialogue rendered by the tokenizer's own template, up to the beginning of the assistant's next turn. Raises as `render`."""
    return _own(tokenizer, tools)(messages, prompt=True)[0]


def whole_text(messages: list[Message], tokenizer: Any) -> str:
    """A dialogue rendered by the tokenizer's own template. Raises as `render`."""
    return _own(tokenizer, None)(messages)[0]


def _own(tokenizer: Any, tools: list[Any] | None) -> _Rendering:
    try:
        text = str(tokenizer.get_chat_template(tools=tools))
    except ValueError as error:
        raise BadSample("the tokenizer has several chat templates, and none is the default") from error
    return _Rendering(text, "the chat template (the tokenizer's own)", tokenizer.special_tokens_map, tools)


@dataclass(frozen=True)
class _Rendering:
    """Renders messages by `text`, which is Jinja, to text and marked spans. `thinking` None: the template's default. Raises as `render`."""

    text: str
    name: str
    special_tokens: dict[str, Any]
    tools: list[Any] | None
    thinking: bool | None = None

    def __call__(self, messages: list[Message], *, prompt: bool = False, spans: bool = False) -> tuple[str, list[tuple[int, int]]]:
        import jinja2
        import transformers.utils.chat_template_utils  # noqa: F401  # before the clock starts: it can take longer than a template may

        try:
            return within(_RENDERS_WITHIN_S, lambda: self._render(self._as_expected(messages, prompt=prompt), prompt=prompt, spans=spans))
        except TimeExceeded:
            reason = f"{self.name} did not finish within {_RENDERS_WITHIN_S:.0f} s"
            raise BadInput(reason, "look for an endless loop in it, or set data.chatTemplate") from None
        except BadSample:
            raise
        except jinja2.exceptions.TemplateSyntaxError as error:
            raise BadInput(f"{self.name}, line {error.lineno}: {error.message}", "correct it") from error
        except (jinja2.exceptions.TemplateError, *REFUSALS) as error:
            raise BadSample(f"the chat template refuses it: {error}", ANOTHER_TEMPLATE) from error

    def _as_expected(self, messages: list[Message], *, prompt: bool) -> list[Message]:
        """Contents, reasoning and tool calls in the form that the template takes."""
        messages = answer_form(self.text, self.special_tokens).of(messages, self.name, prompt=prompt)
        if not self.tools and not any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
            return messages
        form = tool_form(self.text)
        if lacking := form.lacks(messages, self.tools):
            raise BadSample(f"{self.name} leaves {lacking} out", _TEMPLATE_WITH_TOOLS)
        return form.of(messages)

    def _render(self, messages: list[Message], *, prompt: bool, spans: bool) -> tuple[str, list[tuple[int, int]]]:
        switch = {SWITCH: self.thinking} if self.thinking is not None and SWITCH in self.text else {}
        return jinja_text(self.text, messages, spans=spans, tools=self.tools, add_generation_prompt=prompt, **switch, **self.special_tokens)


def _spans_by_prefix(chat: Chat, whole: str, text_of: _Rendering) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for turn, message in enumerate(chat.messages):
        if message["role"] != "assistant":
            continue
        before = text_of(chat.messages[:turn], prompt=True)[0]
        after = whole if turn + 1 == len(chat.messages) else text_of(chat.messages[: turn + 1])[0]
        if not after.startswith(before):  # prompts open answers in another way; `counted_spans` compares them
            before = text_of(chat.messages[:turn])[0]
        if not whole.startswith(after) and reasoning_of(message):  # the template leaves reasoning out where other turns follow
            spans.append((spans[-1][1], spans[-1][1]) if spans else (0, 0))
            continue
        if not whole.startswith(after) or not after.startswith(before):
            raise BadInput(
                "the chat template renders turns differently when others follow, so the assistant's tokens cannot be found",
                "set data.chatTemplate to one that puts {% generation %} … {% endgeneration %} around assistant turns, or data.lossOn: all",
            )
        spans.append((len(before), len(after)))
    return spans
