"""Tokens of rendered chats in one pass of the tokenizer, without offsets. Texts are cut at places that no token crosses, and the number of
tokens of each piece gives the tokens with loss.

Between the last wall (`walls`) and an answer stands text of the template ("assistant\\n"). A window (`pre_tokens`) shows whether a token
joins this text with the answer. If one does, the two must be tokenised apart (`Encoder`). If the window does not show it, the chat is
tokenised by offsets (`by_offsets`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from tuneyard.data.borders import puts_blanks, with_exact_offsets
from tuneyard.data.pre_tokens import LONGEST_WINDOW, TokenWindows, cuts_anywhere, keeps_places, splits_locally
from tuneyard.data.token_spans import Range, Tokens, direct_backend, fast_tokens
from tuneyard.data.walls import Walls, walls_of

_LONGEST_OPENING = 64
"""Characters that a template may write between the last wall and an answer."""


@dataclass(frozen=True)
class _Place:
    """A place `tokens` tokens after `cut`. `wall`: the end of the last wall before it. Both in characters."""

    wall: int
    cut: int
    tokens: int = 0


@dataclass(frozen=True)
class _Plan:
    """The cuts of one text. `cuts`: in characters, from 0 to the text's end. `marks`: the begin and end of each span."""

    cuts: list[int]
    marks: list[tuple[_Place, _Place]]


@dataclass(frozen=True)
class OnePass:
    """The one-pass encoder of a tokenizer. `anywhere`: a cut at any place that no token crosses leaves the tokens unchanged."""

    backend: Any
    windows: TokenWindows
    walls: Walls
    anywhere: bool

    def encode(self, chats: Sequence[tuple[str, Sequence[Range]]]) -> list[Tokens | None]:
        """Tokens of each chat: its text, and the [start, end) in characters of its spans with loss. None: this way does not work for it."""
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
    """The one-pass encoder of a tokenizer. None where the tokenizer puts blanks before texts, moves characters, or is random."""
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
    windows = TokenWindows(exact, local=splits_locally(rules), composes=rules["normalizer"] is not None)
    return OnePass(backend, windows, walls, cuts_anywhere(rules))
