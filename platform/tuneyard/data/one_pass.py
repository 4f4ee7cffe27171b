"""Tokens of rendered chats in one pass of the tokenizer, without offsets: texts are cut where no token reaches across, and the number of
tokens of each piece tells which of them carry loss.

Between the last wall (`walls`) and an answer stands what a template writes ("assistant\\n"). Whether a token joins it with the answer is
told by a window (`pre_tokens`); where one does, the two have to be tokenised apart (`Encoder`). Where neither can be told, the chat is left
to the way over offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from tuneyard.data.borders import puts_blanks, with_exact_offsets
from tuneyard.data.pre_tokens import LONGEST_WINDOW, Windows, cuts_anywhere, keeps_places, splits_locally
from tuneyard.data.token_spans import Range, Tokens, direct_backend, fast_tokens
from tuneyard.data.walls import Walls, walls_of

_LONGEST_OPENING = 64
"""Characters that a template may write between the last wall and an answer."""


@dataclass(frozen=True)
class _Place:
    """So many tokens behind a cut. `wall`: where the last wall before it ends."""

    wall: int
    cut: int
    tokens: int = 0


@dataclass(frozen=True)
class _Plan:
    """`cuts`: characters, from 0 to the text's end. `marks`: where the spans begin and end."""

    cuts: list[int]
    marks: list[tuple[_Place, _Place]]


@dataclass(frozen=True)
class OnePass:
    """One tokenizer's way. `anywhere`: a text that is cut where no token reaches across has the same tokens, wherever that is."""

    backend: Any
    windows: Windows
    walls: Walls
    anywhere: bool

    def encode(self, chats: Sequence[tuple[str, Sequence[Range]]]) -> list[Tokens | None]:
        """Tokens of texts with [start, end) in characters of what carries loss; None where they cannot be told this way."""
        plans = [self._plan(text, spans) for text, spans in chats]
        planned = [(text, plan) for (text, _), plan in zip(chats, plans, strict=True) if plan is not None]
        pieces = [text[start:end] for text, plan in planned for start, end in pairwise(plan.cuts)]
        found = iter(fast_tokens(self.backend, pieces, add_special_tokens=False))
        return [None if plan is None else _joined(plan, found) for plan in plans]

    def _plan(self, text: str, spans: Sequence[Range]) -> _Plan | None:
        marks: list[tuple[_Place, _Place]] = []
        start_before = -1
        starts = {start for start, _ in spans}
        for start, end in spans:
            first = self._start(text, start)
            last = self._start(text, end) if end in starts else self._end(text, end)
            if first is None or last is None or not start_before < first.wall or last.wall <= start or start >= end:
                return None
            marks.append((first, last))
            start_before = start
        cuts = {0, len(text), *chain.from_iterable((first.cut, last.cut) for first, last in marks)}
        return _Plan(sorted(cuts), marks)

    def _start(self, text: str, start: int) -> _Place | None:
        if self.walls.at(text, start):
            return _Place(start, start)
        wall = self.walls.before(text, start, _LONGEST_OPENING)
        if wall is None or self.walls.others_in(text, wall, start + LONGEST_WINDOW):
            return None
        if self.anywhere:
            return _Place(wall, start)
        tokens = self.windows.tokens_before(text, wall, start, self.walls.behind(text, start, LONGEST_WINDOW))
        if tokens is None:
            return None
        return _Place(wall, start) if tokens < 0 else _Place(wall, wall, tokens)

    def _end(self, text: str, end: int) -> _Place | None:
        return _Place(end, end) if self.walls.at(text, end) else None


def _joined(plan: _Plan, found: Iterator[list[int]]) -> Tokens:
    ids: list[int] = []
    at: dict[int, int] = {}
    for start in plan.cuts[:-1]:
        at[start] = len(ids)
        ids.extend(next(found))
    at[plan.cuts[-1]] = len(ids)
    return Tokens(ids, tuple((at[first.cut] + first.tokens, at[last.cut] + last.tokens) for first, last in plan.marks))


def one_pass(tokenizer: Any) -> OnePass | None:
    """The way of a tokenizer; None where it puts blanks before texts, changes the places of characters, or draws lots."""
    backend = direct_backend(tokenizer)
    if backend is None:
        return None
    rules = json.loads(backend.to_str())
    if not keeps_places(rules) or puts_blanks(tokenizer):
        return None
    walls = walls_of(backend.get_added_tokens_decoder().values(), normalises=rules["normalizer"] is not None)
    if walls is None:
        return None
    exact = with_exact_offsets(tokenizer).backend_tokenizer
    windows = Windows(exact, local=splits_locally(rules), composes=rules["normalizer"] is not None)
    return OnePass(backend, windows, walls, cuts_anywhere(rules))
