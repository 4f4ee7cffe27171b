"""Which characters of a rendered chat carry loss: those of the assistant's turns that go on from the prompt that an engine would get.

A turn whose reasoning the template leaves out, as many do for all turns but the last, would teach the model not to think. Such a turn
carries no loss; where it is the last one, the whole sample is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuneyard.data.answer_form import REASONING, AnswerForm, reasoning_of, said_in
from tuneyard.data.left_out import ANOTHER_TEMPLATE, Span
from tuneyard.data.messages import BadSample, carries_loss
from tuneyard.data.roles import Chat
from tuneyard.data.tool_calls import Message

_REASON_OR_TEMPLATE = (
    "if it opens answers with a thought, give them one (reasoning_content, or <think>…</think> in the content), or set data.chatTemplate"
)


@dataclass(frozen=True)
class Counted:
    """`spans`: [start, end) in characters, in order. `muted`: turns without loss, because the template changes them where others follow."""

    spans: tuple[Span, ...]
    muted: int = 0


def _shows(text: str, wished: str) -> bool:
    """Templates trim contents, and drop flags from them: one line is enough."""
    lines = [line.strip() for line in wished.splitlines() if line.strip()]
    return wished in text or not lines or any(line in text for line in lines)


def spans_of_turns(marks: Sequence[Span], turns: int) -> list[Span]:
    """Marked spans, one for each of so many turns where that can be told: some templates mark reasoning, answer and end apart."""
    spans: list[Span] = []
    if len(marks) == turns:
        return list(marks)
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
        if wished != turns:
            raise BadSample(f"the chat template marks {len(spans)} spans for {len(turns)} assistant turns", ANOTHER_TEMPLATE)
        return Counted(tuple(spans))
    found: list[Span] = []
    muted, before = 0, 0
    for turn, (start, end) in zip(turns, spans, strict=True):
        since, before = before, end
        if wished != turns and not _shows(text[since:end], said_in(chat.messages[turn])):
            raise BadSample(
                "the chat template marks other parts than the assistant's turns, so single turns cannot be told", ANOTHER_TEMPLATE
            )
        if turn not in wished:
            continue
        try:
            found.extend(_counted(chat.messages[turn], text, (start, end), since, form, lambda turn=turn: prompt_of(turn)))  # type: ignore[misc]
        except BadSample:
            if turn == wished[-1]:
                raise
            muted += 1
    return Counted(tuple(found), muted)


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
        at = text.find(opening, max(0, start - len(opening)), min(end, start + len(opening)))
        if at >= 0 and at <= start and at + len(opening) < end:
            return at + len(opening)
    return None
