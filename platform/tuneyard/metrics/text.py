"""Closeness of an output to its references: exact match, numbers, ROUGE-L, F1 of words; and valid JSON."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from tuneyard.metrics.answers import normalised, value_in
from tuneyard.metrics.ways import PLAIN, Ways
from tuneyard.metrics.words import words

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def exact_match(output: str, references: Sequence[str], ways: Ways = PLAIN) -> float:
    """1.0 if the output is alike to a reference (see `answers.alike`), else 0.0."""
    ours = normalised(output, ways.ignore)
    return float(any(ours == normalised(reference, ways.ignore) for reference in references))


def numeric(output: str, references: Sequence[str], ways: Ways = PLAIN) -> float:
    """1.0 if the last number of the output is that of a reference, within the tolerance, else 0.0. Raises ValueError if no reference has a
    number."""
    expected = [value for value in map(value_in, references) if value is not None]
    if not expected:
        raise ValueError(f"no reference has a number: {references[0][:80]!r}")
    ours = value_in(output)
    if ours is None:
        return 0.0
    tolerance, share = Fraction(str(ways.tolerance)), Fraction(str(ways.relative_tolerance))
    return float(any(abs(ours - value) <= max(tolerance, share * abs(value)) for value in expected))


def token_f1(output: str, reference: str) -> float:
    """F1 of the words of both texts as SQuAD counts it (Rajpurkar et al. 2016 and 2018), 0..1.

    Words are in lower case, without punctuation and articles. In scripts without blanks each character is a word, as in MLQA. Texts
    without a word are equal to each other, and to nothing else.
    """
    ours, expected = (Counter(_squad_words(text)) for text in (output, reference))
    if not ours or not expected:
        return float(not ours and not expected)
    common = (ours & expected).total()
    return 2 * common / (ours.total() + expected.total())


def _squad_words(text: str) -> list[str]:
    lower = unicodedata.normalize("NFC", text).lower()
    plain = "".join(each for each in lower if not (each in string.punctuation or unicodedata.category(each)[0] == "P"))
    return [word for part in _ARTICLE.sub(" ", plain).split() for word in (words(part) if not part.isascii() else (part,))]


def rouge_l(output: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (ROUGE-L, Lin 2004), 0..1.

    Words are those of `words`, in lower case. On ASCII they are the words of the `rouge-score` package without stemming, which drops all
    other scripts.
    """
    ours, expected = words(output.lower()), words(reference.lower())
    common = _common_subsequence_length(ours, expected)
    return 2 * common / (len(ours) + len(expected)) if common else 0.0


def _common_subsequence_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Bit-parallel (Hyyrö 2004): a few integer operations per word. The usual table would keep the engine's process busy."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    everywhere = (1 << len(a)) - 1
    open_places = everywhere
    for word in b:
        matched = open_places & places.get(word, 0)
        open_places = ((open_places + matched) | (open_places - matched)) & everywhere
    return len(a) - open_places.bit_count()


def json_valid(output: str) -> float:
    """1.0 if the whole output is one JSON value (RFC 8259: no NaN, no infinity), else 0.0. A Markdown fence around it is no JSON."""
    try:
        json.loads(output, parse_constant=_refuse_constant, parse_int=str)
    except (ValueError, RecursionError):
        return 0.0
    return 1.0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
