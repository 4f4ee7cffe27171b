"""The form in which a chat template takes contents and reasoning, and the text with which it opens an answer.

The form is found by rendering test messages, because no list of templates is complete. Templates of vision models take contents as parts.
Templates of reasoning models take reasoning under one of several keys, inside the content, or not at all. `enable_thinking`, where a
template knows it, changes the opening of the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tuneyard.data.jinja_text import jinja_text
from tuneyard.data.messages import BadSample
from tuneyard.data.tool_calls import Message
from tuneyard.data.tool_form import REFUSALS

SWITCH = "enable_thinking"
REASONING = "reasoning_content"
"""The key of reasoning in canonical messages."""
_KEYS = (REASONING, "thinking", "reasoning")
_INLINE = "inline"
_QUESTION, _ANSWER, _REASON = "tuneyardquestion", "tuneyardanswer", "tuneyardreason"
_USER = {"role": "user", "content": _QUESTION}
_ADVICE = (
    "write the reasoning into the content (<think>…</think>), take it out, or set data.chatTemplate to one that takes reasoning_content"
)
_INSIDE = re.compile(r"<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True)
class AnswerForm:
    """The form of one template.

    `parts`: contents must be lists of parts. `reasoning`: the key of reasoning in a message; `inline`: reasoning stands in the content;
    None: the template leaves reasoning out. `switch`: the template knows `enable_thinking`.

    Text between a question and an answer: `opening` in prompts, `thinking` and `quiet` in prompts with the switch on and off, `unthought`
    before an answer without reasoning. `defaults`: values of the switch that do not change a prompt.
    """

    parts: bool
    reasoning: str | None
    switch: bool
    opening: str
    thinking: str
    quiet: str
    unthought: str
    defaults: frozenset[bool]

    def of(self, messages: list[Message], template: str, *, prompt: bool) -> list[Message]:
        """Canonical messages in the form that the template takes. `template`: its name in messages to people.

        Raises BadSample where the template leaves reasoning out. A `prompt` is exempt: few templates show earlier reasoning.
        """
        if not self.parts and not any(message.get(REASONING) for message in messages):
            return messages
        return [self._of(message, template, prompt) for message in messages]

    def _of(self, message: Message, template: str, prompt: bool) -> Message:
        reasoning = message.get(REASONING)
        if reasoning:
            message = {key: value for key, value in message.items() if key != REASONING}
            if self.reasoning is None and not prompt:
                raise BadSample(f"{template} leaves reasoning out", _ADVICE)
            if self.reasoning == _INLINE:
                message["content"] = f"<think>\n{reasoning.strip()}\n</think>\n\n{message['content']}"
            elif self.reasoning is not None:
                message[self.reasoning] = reasoning
        if self.parts:
            message = message | {"content": [{"type": "text", "text": message["content"]}]}
        return message


def reasoning_of(message: Message) -> str:
    """The reasoning of a canonical message, from its own key or from inside its content."""
    if message["role"] != "assistant":
        return ""
    inside = _INSIDE.search(message["content"]) if "<think>" in message["content"] else None
    return str(message.get(REASONING) or (inside[1] if inside else "")).strip()


def said_in(message: Message) -> str:
    """The content of a canonical message without reasoning."""
    content = str(message["content"])
    return _INSIDE.sub("", content) if message["role"] == "assistant" and "<think>" in content else content


def answer_form(template: str, special_tokens: dict[str, Any]) -> AnswerForm:
    """The form of a chat template, which is given as Jinja."""
    return _form(template, tuple((name, token) for name, token in special_tokens.items() if isinstance(token, str)))


@lru_cache(maxsize=64)
def _form(template: str, special_tokens: tuple[tuple[str, str], ...]) -> AnswerForm:
    special = dict(special_tokens)
    switch = SWITCH in template
    parts = _QUESTION not in _rendered(template, special, [_USER], parts=False) and _QUESTION in _rendered(
        template, special, [_USER], parts=True
    )

    def prompt(thinking: bool | None) -> str:
        more = {SWITCH: thinking} if switch and thinking is not None else {}
        return _rendered(template, special, [_USER], parts=parts, add_generation_prompt=True, **more)

    exchange = [_USER, {"role": "assistant", "content": _ANSWER}]
    plain = _rendered(template, special, exchange, parts=parts, **({SWITCH: False} if switch else {}))
    unthought, answered, _ = _behind(plain).partition(_ANSWER)
    default, thinking, quiet = prompt(None), prompt(True), prompt(False)
    return AnswerForm(
        parts=parts,
        reasoning=_reasoning(template, special, parts=parts),
        switch=switch,
        opening=_behind(default),
        thinking=_behind(thinking),
        quiet=_behind(quiet),
        unthought=unthought if answered else _behind(quiet),
        defaults=frozenset(value for value, text in ((True, thinking), (False, quiet)) if text == default),
    )


def _reasoning(template: str, special: dict[str, Any], *, parts: bool) -> str | None:
    more = {SWITCH: True} if SWITCH in template else {}
    for key in _KEYS:
        turn = {"role": "assistant", "content": _ANSWER, key: _REASON}
        if _REASON in _rendered(template, special, [_USER, turn], parts=parts, **more):
            return key
    if "<think>" in template:
        turn = {"role": "assistant", "content": f"<think>\n{_REASON}\n</think>\n\n{_ANSWER}"}
        if _REASON in _rendered(template, special, [_USER, turn], parts=parts, **more):
            return _INLINE
    return None


def _behind(text: str) -> str:
    return text.rpartition(_QUESTION)[2] if _QUESTION in text else ""


def _rendered(template: str, special: dict[str, Any], messages: list[Message], *, parts: bool, **more: Any) -> str:
    """The rendered text; empty where the template refuses the chat."""
    import jinja2

    if parts:
        messages = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in messages]
    try:
        return jinja_text(template, messages, **special, **more)[0]
    except (jinja2.exceptions.TemplateError, *REFUSALS):
        return ""
