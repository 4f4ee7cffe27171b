"""Walls in texts: added tokens such as `<|im_end|>`, which a tokenizer cuts out of a text first, at every place.

The texts before and after a wall are therefore tokenised independently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any


@dataclass(frozen=True)
class Walls:
    """Patterns of a tokenizer's added tokens. `others`: added tokens that depend on the text around them (blanks, words, other tokens)."""

    walls: re.Pattern[str]
    others: re.Pattern[str] | None
    longest: int

    def before(self, text: str, place: int, at_most: int) -> int | None:
        """The end of the last wall before `place`, at most `at_most` characters before it; the text's start counts as a wall.

        None where there is no such wall, or `place` is inside a wall.
        """
        first = max(0, place - at_most - self.longest)
        last = 0 if first == 0 else -1
        for found in self.walls.finditer(text, first, place + self.longest):
            if found.start() >= place:
                break
            if found.end() > place:
                return None
            last = found.end()
        return last if last >= 0 and place - last <= at_most else None

    def at(self, text: str, place: int) -> bool:
        """Whether a wall begins or ends at a place; the text's end counts as a wall."""
        return place == len(text) or self.walls.match(text, place) is not None or self.before(text, place, 0) == place

    def behind(self, text: str, place: int, at_most: int) -> int:
        """The start of the first wall at most `at_most` characters after `place`; else the text's end."""
        found = self.walls.search(text, place, place + at_most + self.longest)
        return found.start() if found else len(text)

    def others_in(self, text: str, start: int, end: int) -> bool:
        """Whether one of `others` begins in [start, end) of a text."""
        return self.others is not None and self.others.search(text, start, end + self.longest) is not None


def walls_of(added: Iterable[Any], *, normalises: bool) -> Walls | None:
    """The walls among a tokenizer's added tokens (`tokenizers.AddedToken`), if any. `normalises`: the tokenizer has a normalizer."""
    every = {token.content: token for token in added if token.content}
    words = any(token.single_word for token in every.values())
    walls = [
        content
        for content, token in every.items()
        if not (token.lstrip or token.rstrip or token.single_word or (token.normalized and normalises))
        and not (words and (_in_word(content[0]) or _in_word(content[-1])))
        and not any(_may_overlap(content, other) for other in every)
    ]
    if not walls:
        return None
    others = every.keys() - set(walls)
    return Walls(
        re.compile(any_of(sorted(walls))), re.compile(any_of(sorted(others))) if others else None, max(len(content) for content in every)
    )


def _may_overlap(content: str, other: str) -> bool:
    """Whether two different occurrences can share characters."""
    if content != other and (content in other or other in content):
        return True
    shorter = min(len(content), len(other))
    return any(content[-n:] == other[:n] or other[-n:] == content[:n] for n in range(1, shorter + (content != other)))


def _in_word(character: str) -> bool:
    """Whether this character beside a `single_word` token makes both one word."""
    return character.isalnum() or character == "_"


def any_of(contents: Collection[str]) -> str:
    """A pattern of sorted texts that shares common prefixes: models have hundreds of reserved tokens."""
    if len(contents) == 1:
        return re.escape(next(iter(contents)))
    branches = [(first, [content[1:] for content in group]) for first, group in groupby(contents, key=lambda content: content[:1])]
    # Of two texts with a common prefix, the longer one comes first, as in tokenizers.
    parts = [re.escape(first) + (any_of(rest) if first and any(rest) else "") for first, rest in reversed(branches)]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
