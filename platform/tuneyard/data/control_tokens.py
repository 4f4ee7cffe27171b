"""Texts of rows that spell a control token, such as `<|im_end|>` in a user's message.

A tokenizer makes no difference between a control token that a chat template writes and the same characters in a message. A user's text, an
answer of a tool or an answer before a judge could thus end its own turn and begin another one. Such texts are sealed before they are
rendered: a seam behind the first character of the token's text, at which the rendered chat is cut and tokenised in pieces.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tuneyard.api.data import ControlTokens
from tuneyard.data.messages import BadSample
from tuneyard.data.roles import Chat
from tuneyard.data.tool_calls import Message
from tuneyard.data.walls import any_of

SEAM = "\ufdd0"
"""A code point that Unicode reserves for use inside programs: no text has it."""
_TRUSTED = ("system", "developer", "assistant")
"""Roles whose texts may write control tokens. Texts of all others, such as users and tools, come from outside."""
_USUAL = ("user", "tool", *_TRUSTED)
_MARKS_OF_REASONING = ("<think>", "</think>")
_SHAPED = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
_ADVICE = "take it out of the text, or set data.controlTokens: text, which reads it as plain text"
_MOST_NAMED = 10


@dataclass(frozen=True)
class Spelled:
    """Control tokens in the texts of a row. `as_text`: read as plain text. `as_tokens`: they become the tokens that they spell."""

    as_text: frozenset[str] = frozenset()
    as_tokens: frozenset[str] = frozenset()

    def __or__(self, other: Spelled) -> Spelled:
        return Spelled(self.as_text | other.as_text, self.as_tokens | other.as_tokens)


NONE = Spelled()


@dataclass(frozen=True)
class Controls:
    """The control tokens of a tokenizer, and the `policy` for texts of rows that spell one: a value of data.controlTokens."""

    pattern: re.Pattern[str] | None
    policy: ControlTokens = "text"
    hidden: tuple[Callable[[str], str], re.Pattern[str]] | None = None
    """How the tokenizer normalizes texts, and the control tokens that it finds in normalized texts only."""

    @classmethod
    def of(cls, tokenizer: Any, template: str | None, policy: ControlTokens = "text") -> Controls:
        """Control tokens are the special tokens, added tokens that the template writes, and added tokens of the form `<|…|>`.

        A tokenizer without a table of added tokens (mistral-common's) never reads a text as a control token.
        """
        added = getattr(tokenizer, "added_tokens_decoder", None)
        if not isinstance(added, Mapping):
            return cls(None, policy)
        names = {str(token.content) for token in added.values() if token.special or _SHAPED.fullmatch(token.content)}
        names |= {str(token.content) for token in added.values() if template is not None and token.content in template}
        names |= {str(token) for token in tokenizer.all_special_tokens}
        shown = sorted(name for name in names if len(name.strip()) > 1)
        if not shown:
            return cls(None, policy)
        return cls(re.compile(any_of(shown)), policy, _normalized_controls(tokenizer, set(shown), added))

    def seal(self, chat: Chat) -> tuple[Chat, Spelled]:
        """The chat with its texts as they are rendered, and what they spell. Raises BadSample for a text that the policy refuses."""
        messages, of_messages = self._seal_messages(chat.messages)
        tools, of_tools = self._seal_tools(chat.tools)
        spelled = of_messages | of_tools
        if not spelled.as_text:
            return chat, spelled
        if any(SEAM in text for text in _texts_of([*chat.messages, chat.tools])):
            raise BadSample(f"it holds {SEAM!r}, a code point that Unicode reserves, beside the text of a control token", "take it out")
        return replace(chat, messages=messages, tools=tools), spelled

    def _seal_tools(self, tools: list[Any] | None) -> tuple[list[Any] | None, Spelled]:
        """As `seal`, for descriptions of tools: other people have written them."""
        names = self._in_value(tools, "tools")
        if not names or self.policy != "text":
            return tools, Spelled(as_tokens=frozenset(names))
        return self._sealed_value(tools), Spelled(as_text=frozenset(names))

    def _seal_messages(self, messages: list[Message]) -> tuple[list[Message], Spelled]:
        """As `seal`, for messages with all their parts: names and tool calls are rendered too. No role may spell a control token."""
        found = [self._in_message(message) for message in messages]
        if not any(found):
            return messages, NONE
        sealed, as_text, as_tokens = list[Message](), set[str](), set[str]()
        for message, names in zip(messages, found, strict=True):
            is_sealed = bool(names) and self.policy == "text" and message["role"] not in _TRUSTED
            (as_text if is_sealed else as_tokens).update(names)
            sealed.append(self._sealed_value(message) if is_sealed else message)
        return sealed, Spelled(frozenset(as_text), frozenset(as_tokens))

    def look_at(self, *texts: str) -> Spelled:
        """What texts without roles spell. Their tokens are those that they spell, unless the policy refuses them: raises BadSample."""
        names = {name for text in texts for name in self._in_text(text, "")}
        return Spelled(as_tokens=frozenset(names)) if names else NONE

    def _in_message(self, message: Message) -> list[str]:
        role, content = message["role"], message.get("content")
        if role not in _USUAL and self.policy != "template" and self.pattern is not None and self.pattern.search(role):
            raise BadSample(f"the role {role!r} spells a control token", "name a usual role: system, user, assistant or tool")
        if len(message) == 2 and isinstance(content, str):  # nearly all messages
            return self._in_text(content, role)
        return self._in_value(message, role)

    def _in_value(self, value: Any, role: str) -> list[str]:
        """Control tokens in all texts of a value, which has the parts of JSON. Raises BadSample as `_in_text`."""
        if self.pattern is None or value is None:
            return []
        return [name for text in _texts_of(value) for name in self._in_text(text, role)]

    def _in_text(self, text: str, role: str) -> list[str]:
        if self.pattern is None:
            return []
        names = self.pattern.findall(text)
        if role == "assistant":  # the form in which reasoning stands in an answer
            names = [name for name in names if name not in _MARKS_OF_REASONING]
        if names and self.policy == "refuse":
            raise BadSample(f"{_whose(role)} spells the control token {names[0]}", _ADVICE)
        if self.hidden is not None and self.policy != "template" and role not in ("", *_TRUSTED):
            normalize, pattern = self.hidden
            if found := pattern.search(normalize(self._sealed(text))):  # it cannot be sealed
                reason = f"{_whose(role)} spells the control token {found[0]}, once the tokenizer has normalized it"
                raise BadSample(reason, "take it out of the text")
        return names

    def _sealed_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._sealed(value)
        if isinstance(value, dict):
            return {self._sealed_value(key): self._sealed_value(each) for key, each in value.items()}
        return [self._sealed_value(each) for each in value] if isinstance(value, list) else value

    def _sealed(self, text: str) -> str:
        assert self.pattern is not None
        while self.pattern.search(text):  # again, because what is left behind a seam may spell another token
            text = self.pattern.sub(lambda match: match[0][0] + SEAM + match[0][1:], text)
        return text


def _whose(role: str) -> str:
    return {"": "its text", "tools": "a description of a tool"}.get(role, f"the text of the {role}")


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts_of(key)
            yield from _texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_of(each)


def _normalized_controls(tokenizer: Any, names: set[str], added: Mapping[int, Any]) -> tuple[Callable[[str], str], re.Pattern[str]] | None:
    """How the tokenizer normalizes a text, and the control tokens that it looks for afterwards; None where there are none."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    late = {str(token.content) for token in added.values() if token.normalized} & names
    if normalizer is None or not late:
        return None
    shown = sorted({normalizer.normalize_str(name) for name in late} | late)
    return normalizer.normalize_str, re.compile(any_of([name for name in shown if name]))


def cut_at_seams(text: str, spans: tuple[tuple[int, int], ...] = ()) -> tuple[str, tuple[tuple[int, int], ...], list[int]]:
    """A rendered text without seams, its spans there, and the places at which it must be cut."""
    pieces = text.split(SEAM)
    cuts = list(accumulate(map(len, pieces[:-1])))
    seams = [cut + count for count, cut in enumerate(cuts)]

    def moved(place: int) -> int:
        return place - bisect_left(seams, place)

    return "".join(pieces), tuple((moved(start), moved(end)) for start, end in spans), cuts


def controls_notes(as_text: Mapping[str, int], as_tokens: Mapping[str, int]) -> Iterator[str]:
    """Warnings about rows that spell control tokens. The mappings count rows by token."""
    if as_text:
        yield f"texts of users or tools spell control tokens, which are read as plain text: {_counted(as_text)}"
    if as_tokens:
        yield (
            f"texts of rows spell control tokens, and become these tokens: {_counted(as_tokens)}; "
            "data.controlTokens: refuse leaves such rows out"
        )


def _counted(rows: Mapping[str, int]) -> str:
    most = Counter(rows).most_common()
    left = len(most) - _MOST_NAMED
    more = f", and {left} other{'s' * (left > 1)}" if left > 0 else ""
    return ", ".join(f"{name} in {count:,} row{'s' if count != 1 else ''}" for name, count in most[:_MOST_NAMED]) + more
