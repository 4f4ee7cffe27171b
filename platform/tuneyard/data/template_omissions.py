"""A check that a chat template leaves nothing out of a chat. Templates do so silently, and the model then learns another chat.

Each content must occur in the text as often as in the chat. Contents of users, tools and the system must occur outside the spans with loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from tuneyard.data.answer_form import said_in
from tuneyard.data.messages import ROLES, BadSample
from tuneyard.data.tool_calls import Message

Span = tuple[int, int]
ANOTHER_TEMPLATE = "give a chat template that takes such chats (data.chatTemplate), or change their system turns, tools or order"
_SWITCHES = re.compile(r"/(?:no_)?think\b")
"""Commands in a content that templates of reasoning models remove and obey."""


def check_shown(messages: Sequence[Message], text: str, template: object, jinja: str, spans: Sequence[Span] = ()) -> None:
    """Check the rendered text of a chat. `jinja`: the template's text. `spans`: the parts of the text marked as the assistant's.

    Raises BadSample where the text lacks a message or a part of one, or where another role's message stands in `spans`.
    Many templates silently leave out unknown roles; others print any role. Contents are compared without surrounding blanks, then line by
    line, because templates trim.
    """
    for message in messages:
        role = message["role"]
        if role not in ROLES and f"'{role}'" not in jinja and f'"{role}"' not in jinja:
            raise BadSample(f"{template} knows no role {role!r}", f"roles are {', '.join(ROLES)}; or {ANOTHER_TEMPLATE}")
    contents = [said_in(message) for message in messages]
    others = [content for message, content in zip(messages, contents, strict=True) if message["role"] != "assistant"]
    outside = _outside(text, spans) if spans else text
    all_said, said_by_others = "\0".join(contents), "\0".join(others)
    for message, content in zip(messages, contents, strict=True):
        own = message["role"] == "assistant"
        if _stands_in(text if own else outside, content, all_said if own else said_by_others):
            continue
        if message["role"] == "tool" and any(_stands_in(outside, form, form) for form in _escaped(content)):
            continue
        if not own and spans and _stands_in(text, content, all_said):
            raise BadSample(f"{template} marks content of the {message['role']} as the assistant's", ANOTHER_TEMPLATE)
        raise BadSample(f"{template} leaves out content of the {message['role']}", ANOTHER_TEMPLATE)


def _stands_in(text: str, content: str, said: str) -> bool:
    """Whether a content occurs in the text at least as often as in `said`, the contents of the chat."""
    wished = content.strip()
    if not wished or text.count(wished) >= said.count(wished):
        return True
    lines = {line.strip() for line in _SWITCHES.sub("\n", content).splitlines()}
    return all(text.count(line) >= said.count(line) for line in lines if line)


def _escaped(content: str) -> Iterator[str]:
    """The content of a tool's answer, escaped as in JSON."""
    yield json.dumps(content, ensure_ascii=False)[1:-1]
    yield json.dumps(content)[1:-1]


def _outside(text: str, spans: Sequence[Span]) -> str:
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    return "\0".join(text[end:start] for end, start in zip(ends, starts, strict=True))
