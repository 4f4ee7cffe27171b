"""Texts of answers where the marks of thoughts are special tokens: engines leave these out of texts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.scoring.thoughts import CLOSE, OPEN


class SpecialMarks:
    """Decodes answers with their marks. It has a tokenizer of its own, because other threads make prompts with theirs."""

    def __init__(self, tokenizer: Any, marks: Mapping[int, str]) -> None:
        self._tokenizer, self._marks = copy.deepcopy(tokenizer), marks

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialMarks | None:
        """None where texts have the marks anyway."""
        added = tokenizer.added_tokens_decoder
        if not isinstance(added, Mapping):
            return None  # a tokenizer of mistral-common
        marks = {number: token.content for number, token in added.items() if token.special and token.content in (OPEN, CLOSE)}
        return cls(tokenizer, marks) if marks else None

    def text(self, ids: Sequence[int], bare: str) -> str:
        """The text of tokens with its marks. `bare`: the engine's text without them, which may be shorter: it ends before a stop text, and
        before half a character."""
        pieces, since, left = list[str](), 0, len(bare)
        for place, number in enumerate(ids):
            if number in self._marks:
                piece = self._decoded(ids[since:place])
                pieces += [piece, self._marks[number]]
                left, since = left - len(piece), place + 1
        return "".join(pieces) + self._decoded(ids[since:])[: max(0, left)]

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
