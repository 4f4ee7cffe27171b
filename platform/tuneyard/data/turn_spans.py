"""The characters of a rendered chat that carry loss: the assistant's turns that continue the prompt that an engine gets.

Many templates leave out the reasoning of all turns except the last. Such a turn teaches the model not to think, so it carries no loss. If
it is the last turn, the whole sample is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuneyard.data.answer_form import REASONING, AnswerForm, reasoning_of, said_in
from tuneyard.data.messages import BadSample, carries_loss
from tuneyard.data.roles import Chat
from tuneyard.data.template_omissions import ANOTHER_TEMPLATE, Span
from tuneyard.data.tool_calls import Message

_REASON_OR_TEMPLATE = (
    "if the template opens answers with reasoning, add reasoning to them (reasoning_content, or <think>…</think> in the content), "
    "or set data.chatTemplate"
)


@dataclass(frozen=True)
class LossSpans:
    """`spans`: [start, end) in characters of the parts with loss, in order. `muted`: number of turns whose loss is dropped, because the
    template changes turns where others follow."""

    spans: tuple[Span, ...]
    muted: int = 0


def _shows(text: str, wished: str) -> bool:
    """Whether a text shows a content. Templates trim contents and drop flags from them, so one line is enough."""
    lines = [line.strip() for line in wished.splitlines() if line.strip()]
    return wished in text or not lines or any(line in text for line in lines)


def spans_of_turns(marks: Sequence[Span], turns: int) -> list[Span]:
    """Marked spans merged to one span per turn, if possible: some templates mark reasoning, answer and end separately."""
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
) -> LossSpans:
    """The spans that carry loss, among `spans` of the assistant's turns. `prompt_of`: index of a message -> the possible prompts for it.

    Raises BadSample where the last turn lacks its reasoning, or does not continue its prompt.
    """
    turns = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    wished = [i for i in turns if i >= chat.context and carries_loss(chat.messages[i])]
    if last_only:
        wished = [i for i in wished if i == turns[-1]]
    if len(spans) != len(turns):
        if wished != turns:
            raise BadSample(f"the chat template marks {len(spans)} spans for {len(turns)} assistant turns", ANOTHER_TEMPLATE)
        return LossSpans(tuple(spans))
    found: list[Span] = []
    muted, before = 0, 0
    for turn, (start, end) in zip(turns, spans, strict=True):
        since, before = before, end
        if wished != turns and not _shows(text[since:end], said_in(chat.messages[turn])):
            raise BadSample(
                "the chat template marks other parts than the assistant's turns, so single turns cannot be found", ANOTHER_TEMPLATE
            )
        if turn not in wished:
            continue
        try:
            found.extend(_counted(chat.messages[turn], text, (start, end), since, form, lambda turn=turn: prompt_of(turn)))  # type: ignore[misc]
        except BadSample:
            if turn == wished[-1]:
                raise
            muted += 1
    return LossSpans(tuple(found), muted)


def _counted(message: Message, text: str, span: Span, since: int, form: AnswerForm, prompts: Callable[[], list[str]]) -> list[Span]:
    """A turn's span from the end of its prompt on; cut in two where a saved template opens more of the answer (`saved_template`)."""
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
                f"the answer does not continue the prompt that the chat template renders from the turns before it: …{asked[0][-24:]!r}",
                _REASON_OR_TEMPLATE,
            )
        opened = max((len(prompt) for prompt in asked if text.startswith(prompt) and len(prompt) < end), default=start)
    start = max(start, opened)
    further = None if reason else _opened(text, (start, end), (form.unthought,))
    if further is not None and start < further < end and text[start:further].strip():
        return [(start, further), (further, end)]
    return [(start, end)]


def _opened(text: str, span: Span, openings: Sequence[str]) -> int | None:
    """The end of the first opening that stands in the text at the span's start; None where there is none."""
    start, end = span
    for opening in filter(None, openings):
        at = text.find(opening, max(0, start - len(opening)), min(end, start + len(opening)))
        if at >= 0 and at <= start and at + len(opening) < end:
            return at + len(opening)
    return None
