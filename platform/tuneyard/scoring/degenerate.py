"""Degenerate outputs, independent of any metric: empty outputs, and outputs that end in a loop."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|\w+|[^\w\s]")
"""Words and punctuation; single characters for scripts without blanks between words."""
_LEAST_PHRASE, _TIMES = 2, 3
_LONGEST_PHRASE = 200


def is_empty(output: str) -> bool:
    return not output.strip()


def ends_in_loop(output: str) -> bool:
    """Whether an output ends with the same phrase of at least two words, at least three times in a row.

    The measure of repetition of Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 5.2, with words for tokens.
    The last occurrence may be cut, for example by `maxTokens`. Phrases of more than 200 words are not searched for.
    """
    words = _TOKEN.findall(output.lower())
    longest = min(_LONGEST_PHRASE, len(words) // _TIMES)
    return any(_repeats(words, phrase) for phrase in range(_LEAST_PHRASE, longest + 1))


def _repeats(words: list[str], phrase: int) -> bool:
    end = words[-_TIMES * phrase :]
    return end[phrase:-1] == end[: -phrase - 1] and end[-phrase - 1].startswith(end[-1])
