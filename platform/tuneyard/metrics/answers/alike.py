"""When two answers are alike: what exact match may leave out of both. Each entry of `IGNORED` is one thing to leave out."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Collection, Mapping

_ARTICLE = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_IN_NUMBER = re.compile(r"(?<=\d)\.(?=\d)|(?<![\w.])-(?=\.?\d)|(?<![\w.])\.(?=\d)")
"""A decimal point, and the sign of a number."""


def _without_punctuation(text: str) -> str:
    """Without characters of Unicode's category P and ASCII's symbols. A sign and a decimal point of a number stay: `-4` is not `4`."""
    kept = {match.start() for match in _IN_NUMBER.finditer(text.replace("−", "-"))}
    return "".join(
        each for place, each in enumerate(text) if place in kept or not (each in string.punctuation or unicodedata.category(each)[0] == "P")
    )


IGNORED: Mapping[str, Callable[[str], str]] = {
    "case": str.casefold,
    "punctuation": _without_punctuation,
    "articles": lambda text: _ARTICLE.sub(" ", text),
    "whitespace": lambda text: "".join(text.split()),
}
"""What `score.ignore` may hold, in the order in which it is left out, which is SQuAD's."""


def normalised(text: str, ignore: Collection[str]) -> str:
    """A text after Unicode NFC, with a blank for each run of white space and none at the ends, without what is ignored.

    Where nothing would be left, that step is left out: `The` and `A` are two answers.
    """
    text = " ".join(unicodedata.normalize("NFC", text).split())
    for name, without in IGNORED.items():
        if name in ignore:
            text = " ".join(without(text).split()) or text
    return text


def alike(output: str, reference: str, ignore: Collection[str] = ()) -> bool:
    """Whether two answers are equal but for what is ignored."""
    return normalised(output, ignore) == normalised(reference, ignore)
