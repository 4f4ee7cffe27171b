r"""Whether a token crosses a place in a text, decided by the characters around that place.

Tokenizers first split a text into pre-tokens, and no token crosses two of them. Where a known pattern splits, each pre-token depends on
the characters from its start to a few after its end. A window around the place therefore gives the same tokens as the whole text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

_MARGIN = 4
"""Characters after a pre-token that decide its end. The longest sequence in a pattern is an apostrophe with two letters."""
_HEADS = (_MARGIN, 40)
"""Characters after the blanks that follow a place: few first, so that many texts share a window, then more."""
_MOST_WINDOWS = 1 << 16
_MOST_BLANKS = 64
_BLANKS = re.compile(rf"\s{{0,{_MOST_BLANKS}}}")
LONGEST_WINDOW = _MOST_BLANKS + _HEADS[-1] + _MARGIN
"""Maximum number of characters of a window after its place."""
_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS_WITH_MARKS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NUMBERS = (r"\p{N}", *(rf"\p{{N}}{{1,{digits}}}" for digits in range(1, 10)))
KNOWN = frozenset({_GPT_2, _WORDS_WITH_MARKS, *_NUMBERS, *(_WORDS % number for number in _NUMBERS)})
"""Patterns of GPT-2, Llama 3, Qwen 2 and 3.5 and related models. None has a lookbehind. A lookahead is one character, or a whole run of
blanks."""


Rules = dict[str, Any]
"""The content of a tokenizer.json."""


def splits_locally(rules: Rules) -> bool:
    """Whether a tokenizer splits by known patterns alone, and its normalizer is at most NFC."""
    normalizer = rules["normalizer"]
    return (normalizer is None or normalizer["type"] == "NFC") and _is_known(rules["pre_tokenizer"])


def _is_known(pre_tokenizer: Rules | None) -> bool:
    match pre_tokenizer:
        case {"type": "Sequence", "pretokenizers": parts}:
            return all(map(_is_known, parts))
        case {"type": "ByteLevel", "add_prefix_space": False} | {"type": "Digits"}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return pattern in KNOWN
    return False


def cuts_anywhere(rules: Rules) -> bool:
    """Whether a cut at any place that no token crosses leaves the tokens of a text unchanged.

    Byte-pair merges without a pre-tokenizer (Gemma's) have this property. The next merge is the first by rank and place. If no merge ever
    crosses a place, the merges on each side of it depend on that side alone.
    """
    model, splits = rules["model"], rules["pre_tokenizer"]
    replaced = [part["pattern"]["String"] for part in _parts(rules["normalizer"]) if part["type"] == "Replace"]
    match splits:
        case {"type": "Split", "pattern": {"String": pattern}}:
            no_split = pattern in replaced
        case _:
            no_split = splits is None
    return model["type"] == "BPE" and not model.get("ignore_merges") and no_split and "NFC" not in str(rules["normalizer"])


def keeps_places(rules: Rules) -> bool:
    """Whether a tokenizer gives a text the same tokens at any place, where each token stands for at least one character."""
    model = rules["model"]
    if model.get("dropout") or model["type"] not in ("BPE", "WordPiece", "Unigram", "WordLevel"):
        return False
    for part in _parts(rules["normalizer"]):
        match part:
            case {"type": "NFC"}:
                continue
            case {"type": "Replace", "pattern": {"String": old}, "content": new} if len(old) == len(new) == 1:
                continue
        return False
    return not any(part["type"] == "Metaspace" or part.get("add_prefix_space") for part in _parts(rules["pre_tokenizer"]))


def _parts(rules: Rules | None) -> list[Rules]:
    if rules is None:
        return []
    inside = rules.get("pretokenizers") or rules.get("normalizers")
    return [rules] if inside is None else [part for each in inside for part in _parts(each)]


@dataclass(frozen=True)
class TokenWindows:
    """Windows around places in texts, tokenised and cached. `backend`: a tokenizer whose offsets include blanks.

    `local`: see `splits_locally`. `composes`: the tokenizer normalises to NFC.
    """

    backend: Any
    local: bool
    composes: bool
    _seen: dict[tuple[str, str, bool], int | None] = field(default_factory=dict)

    def tokens_before(self, text: str, start: int, place: int, limit: int) -> int | None:
        """Number of tokens from `start` to `place`; -1 where a token crosses `place`; None where a window does not show it.

        No added token stands between `start` and `limit`. At `limit` the text ends, or an added token begins.
        """
        blanks = _BLANKS.match(text, place, limit)
        assert blanks is not None
        if blanks.end() - place == _MOST_BLANKS:
            return None
        for more in _HEADS:
            end = min(limit, blanks.end() + more)
            around = text[start : end + _MARGIN]
            if self.composes and not (around.isascii() or unicodedata.is_normalized("NFC", around)):
                return None
            before = self._looked_up(text[start:place], text[place:end], whole=end == limit)
            if before is not None or end == limit:
                return before
        return None

    def _looked_up(self, left: str, right: str, *, whole: bool) -> int | None:
        key = left, right, whole
        if key not in self._seen:
            if len(self._seen) >= _MOST_WINDOWS:
                self._seen.clear()
            self._seen[key] = self._look(left, right, whole=whole)
        return self._seen[key]

    def _look(self, left: str, right: str, *, whole: bool) -> int | None:
        window, place = left + right, len(left)
        if not whole:
            if not self.local:
                return None
            words = [borders for _, borders in self.backend.pre_tokenizer.pre_tokenize_str(window)]
            if any(start < place and end > len(window) - _MARGIN for start, end in words):
                return None
        offsets = self.backend.encode(window, add_special_tokens=False).offsets
        if any(start < place < end for start, end in offsets):
            return -1
        return len([end for _, end in offsets if end <= place])
