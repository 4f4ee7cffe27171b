"""The score in a judge's answer. Nothing is guessed: a judge without a score is asked again."""

from __future__ import annotations

import re

from tuneyard.api import Judge

_OPENS = r"""[ \t*_:：=|"'`“”‘’\[\](){}]"""
_CLOSES = r"""[ \t\r.,;!*_|)\]}>"'`”’]"""
_DIGITS = r"[-−]?\d++(?:\.\d++|,\d{1,2}+(?!\d))?+"
"""A comma before one or two digits is a decimal comma; before three it may also separate thousands. Possessive: a range such as 85-90
must not become an 8 by backtracking."""
_NUMBER = rf"(?P<number>{_DIGITS})(?:[ \t]*(?:/|out of|of)[ \t]*(?P<highest>{_DIGITS}))?+"
FIRST_WORDS = r"(?<![^\W_])(?<![^\W_]_)"
"""Before a word that no letter, digit or `not_` stands in front of."""
_SCORE = rf"{FIRST_WORDS}score(?:(?<=<score)>)?{_OPENS}{{0,8}}+(?:[-–—][ \t]++)?+"
_MENTION = re.compile(rf"{_SCORE}(?=(?P<said>[^\w\n]{{0,8}}\d[^\n]{{0,200}}))", re.IGNORECASE)
_LINE = re.compile(rf"^[^\w\n]*{_SCORE}{_NUMBER}{_CLOSES}*$", re.IGNORECASE | re.MULTILINE)
_WITHIN = re.compile(
    rf"{_NUMBER}(?:{_CLOSES}{{0,99}}$|[*_)\]}}>\"'`”’]*(?:[.,;!](?=[\s\"])|[)\]}}\"'<*]|[ \t]+(?=because\b|since\b))"
    rf"(?!\W*(?:\d|(?:to|or|and|out|of)\b)))",
    re.IGNORECASE,
)
_RANGE = re.compile(rf"{_DIGITS}\s*(?:to|or|-|–|—)\s*-?\d", re.IGNORECASE)
_BARE = re.compile(rf"{_OPENS}{{0,4}}{_NUMBER}{_CLOSES}{{0,4}}", re.IGNORECASE)
_LONGEST_START = 200
"""Characters from the beginning of a clause to the word that is looked for."""
_CLAUSE = re.compile(r"(?:^|[\n.!?;,])[^\w\n]*_*(?:(?:and|so|thus|hence|therefore|my|the|a|final|overall)\W+)*_*$", re.IGNORECASE)


def begins_a_clause(said: str, place: int) -> bool:
    """Whether the word at `place` begins a clause, as in `so my final verdict`. No other word may stand before it: `no verdict`."""
    return _CLAUSE.search(said, max(0, place - _LONGEST_START), place) is not None


def score_in(said: str, judge: Judge) -> float | None:
    """The score in a judge's answer. None: there is none on the scale.

    The last line that is nothing but `Score: N` counts, unless an unreadable number follows the word `score` below it. Without such a line,
    the number after the word `score` counts if the word begins a clause and all of these numbers are equal, and else the answer itself if
    it is a number. `N/M` and `N out of M` count where M is the end of the scale. A range (`score from 1 to 5`) is no score.
    """
    lines = list(_LINE.finditer(said))
    mentions = [each for each in _MENTION.finditer(said, lines[-1].end() if lines else 0) if not _RANGE.match(each["said"])]
    within = [_WITHIN.match(each["said"]) for each in mentions]
    if any(each is None for each in within):
        return None
    if lines:
        return _on_scale(lines[-1], judge)
    if mentions:
        numbers = {_on_scale(each, judge) for each in within if each is not None}
        begin = all(begins_a_clause(said, each.start()) for each in mentions)
        return numbers.pop() if begin and len(numbers) == 1 else None
    whole = _BARE.fullmatch(said.strip()) if not re.search("score", said, re.IGNORECASE) else None
    return _on_scale(whole, judge) if whole is not None else None


def _on_scale(found: re.Match[str], judge: Judge) -> float | None:
    number, highest = (_value(found[name]) if found[name] else None for name in ("number", "highest"))
    low, high = judge.scale
    return number if number is not None and low <= number <= high and highest in (None, high) else None


def _value(number: str) -> float:
    return float(number.replace(",", ".").replace("−", "-"))
