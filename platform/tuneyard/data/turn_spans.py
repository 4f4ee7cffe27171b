"""Which characters of a rendered chat carry loss: those of the assistant's turns that go on from the prompt that an engine would get.

A turn whose reasoning the template leaves out, as many do for all turns but the last, would teach the model not to think. Such a turn
carries no loss; where it is the last one, the whole sample is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuneyard.data.answer_form import REASONING, AnswerForm, reasoning_of, said_in
from tuneyard.data.messages import ROLES, BadSample, carries_loss
from tuneyard.data.roles import Chat
from tuneyard.data.tool_calls import Message

Span = tuple[int, int]
ANOTHER_TEMPLATE = "give a chat template that takes such chats (data.chatTemplate), or change their system turns, tools or order"
_REASON_OR_TEMPLATE = (
    "if it opens answers with a thought, give them one (reasoning_content, or <think>…</think> in the content), or set data.chatTemplate"
)


@dataclass(frozen=True)
class Counted:
    """`spans`: [start, end) in characters, in order. `muted`: turns without loss, because the template changes them where others follow."""

    spans: tuple[Span, ...]
    muted: int = 0


def check_shown(messages: Sequence[Message], text: str, template: object, jinja: str) -> None:
    """Raises BadSample where the text lacks a message: many templates leave roles that they do not know out without an error, and others
    print any. `jinja`: the template's text."""
    for message in messages:
        role = message["role"]
        if role not in ROLES and f"'{role}'" not in jinja and f'"{role}"' not in jinja:
            raise BadSample(f"{template} knows no role {role!r}", f"roles are {', '.join(ROLES)}; or {ANOTHER_TEMPLATE}")
        if message["role"] != "tool" and not _shows(text, said_in(message)):
            raise BadSample(f"{template} leaves what the {message['role']} says out", ANOTHER_TEMPLATE)


def _shows(text: str, wished: str) -> bool:
    """Templates trim contents, and drop flags from them: one line is enough."""
    lines = [line.strip() for line in wished.splitlines() if line.strip()]
    return wished in text or not lines or any(line in text for line in lines)


def merged(marks: Sequence[Span]) -> list[Span]:
    """Spans without borders between neighbours: some templates mark reasoning, answer and end apart."""
    spans: list[Span] = []
    for start, end in marks:
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def counted_spans(
    chat: Chat, text: str, spans: Sequence[Span], form: AnswerForm, prompt_of: Callable[[int], list[str]], *, last_only: bool
) -> Counted:
    """The spans that carry loss, of `spans` of assistant turns. `prompt_of` (index of a message): the prompts that may ask for it.

    Raises BadSample where the last turn lacks its reasoning, or does not go on from its prompt.
    """
    turns = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    wished = [i for i in turns if i >= chat.context and carries_loss(chat.messages[i])]
    if last_only:
        wished = [i for i in wished if i == turns[-1]]
    if len(spans) != len(turns):
        return _of_unknown_turns(wished == turns, spans, turns, last_only=last_only)
    found: list[Span] = []
    muted, before = 0, 0
    for turn, (start, end) in zip(turns, spans, strict=True):
        since, before = before, end
        if turn not in wished:
            continue
        try:
            found.extend(_counted(chat.messages[turn], text, (start, end), since, form, lambda turn=turn: prompt_of(turn)))  # type: ignore[misc]
        except BadSample:
            if turn == wished[-1]:
                raise
            muted += 1
    return Counted(tuple(found), muted)


def _of_unknown_turns(all_count: bool, spans: Sequence[Span], turns: Sequence[int], *, last_only: bool) -> Counted:
    if last_only:
        return Counted(tuple(spans[-1:]))
    if not all_count:
        raise BadSample(f"the chat template marks {len(spans)} spans for {len(turns)} assistant turns", ANOTHER_TEMPLATE)
    return Counted(tuple(spans))


def _counted(message: Message, text: str, span: Span, since: int, form: AnswerForm, prompts: Callable[[], list[str]]) -> list[Span]:
    """A turn's span from where its prompt ends; cut in two where a saved template would open more of the answer (`saved_template`)."""
    start, end = span
    reason = reasoning_of(message)
    if not _shows(text[since:end], reason):
        advice = f"write {REASONING} into the content, or set data.chatTemplate" if message.get(REASONING) else "set data.chatTemplate"
        raise BadSample("the chat template leaves the reasoning of an answer out", advice)
    opened = _opened(text, span, (form.thinking if reason else form.quiet, form.thinking, form.quiet, form.opening))
    if opened is None:
        asked = prompts()
        if asked and not any(text.startswith(prompt) for prompt in asked):
            raise BadSample(
                f"the answer does not go on from the prompt that the chat template makes of the turns before it: …{asked[0][-24:]!r}",
                _REASON_OR_TEMPLATE,
            )
        opened = max((len(prompt) for prompt in asked if text.startswith(prompt) and len(prompt) < end), default=start)
    start = max(start, opened)
    further = None if reason else _opened(text, (start, end), (form.unthought,))
    if further is not None and start < further < end and text[start:further].strip():
        return [(start, further), (further, end)]
    return [(start, end)]


def _opened(text: str, span: Span, openings: Sequence[str]) -> int | None:
    """Where the first opening that the text has at the span's start ends."""
    start, end = span
    for opening in filter(None, openings):
        at = text.rfind(opening, max(0, start - len(opening)), min(end, start + len(opening)))
        if at >= 0 and at <= start and at + len(opening) < end:
            return at + len(opening)
    return None
