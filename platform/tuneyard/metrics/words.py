"""Words of a text in any script, by properties of Unicode: UAX 29's idea of a word, without its dictionaries.

A word is a run of letters, digits and their combining marks, so that Indic words keep their vowel signs. In scripts without blanks (Han,
kana, and those that UAX 14 calls complex: Thai, Lao, Khmer, Myanmar and others) each character with its marks is a word. So is each
pictograph. On ASCII the words are those of the `rouge-score` package.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

_BLANKLESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70\p{Line_Break=SA}]"
_KANA = r"[\p{Hiragana}\p{Katakana}]"
_JOINER = r"(?:[\u200c\u200d](?=[\p{L}\p{M}]))"
"""Joins letters inside a word of Persian or of an Indic script, and is no letter."""
_WORD = rf"(?:(?!{_BLANKLESS})[\p{{L}}\p{{M}}\p{{N}}]{_JOINER}?)+"
_CHARACTER = rf"(?={_BLANKLESS})\X"
_PICTOGRAPH = r"(?=\p{So})\X"


def words(text: str) -> list[str]:
    """The words of a text after Unicode NFC, in order. Their case is kept."""
    found: list[str] = _compiled(rf"{_CHARACTER}|{_PICTOGRAPH}|{_WORD}").findall(unicodedata.normalize("NFC", text))
    return found


@dataclass(frozen=True)
class Scripts:
    """Letters of some texts: all of them, and those of scripts without blanks, of Han, and of kana."""

    letters: int
    blankless: int
    han: int
    kana: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> Scripts:
        """Counts the letters of texts."""
        counts = [0, 0, 0, 0]
        patterns = [_compiled(each) for each in (r"\p{L}", _BLANKLESS, r"\p{Han}", _KANA)]
        for text in texts:
            for place, pattern in enumerate(patterns):
                counts[place] += len(pattern.findall(text))
        return cls(*counts)

    @property
    def share(self) -> float:
        """The share of letters whose scripts have no blanks between words, 0 to 1."""
        return min(1.0, self.blankless / self.letters) if self.letters else 0.0

    @property
    def chinese(self) -> bool:
        """Whether the scripts without blanks are Han alone, but for a few kana."""
        return self.han > 0 and self.han >= 0.95 * self.blankless and self.kana < 0.05 * self.han


@cache
def _compiled(pattern: str) -> Any:
    import regex  # late: this room loads the standard library alone

    return regex.compile(pattern)
