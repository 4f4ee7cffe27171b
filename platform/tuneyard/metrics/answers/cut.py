"""Cuts the answer out of a text: by a pattern, in a box of LaTeX, the last number, the letter of a choice, or a value of JSON.

Each way is a function of a text that returns the answer without white space around it, or None where the text holds none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tuneyard.metrics.answers.json_path import path_of, value_at
from tuneyard.metrics.answers.letters import letter_in
from tuneyard.metrics.answers.numbers import number_in

Cut = Callable[[str], str | None]
LIMIT_S = 2.0
"""Of a pattern, for one text. A pattern without repetitions inside of repetitions takes milliseconds for 100,000 characters."""
_BRACE = re.compile(r"\\f?box(?:ed)?(?![a-z])\s*(?:\{|(?P<bare>[^\s{}\\]+))|\\.|[{}]", re.DOTALL)
"""A box, a character that a backslash makes plain, or a brace."""


class TooSlow(ValueError):
    """A pattern that takes longer than `LIMIT_S` for a text."""


def _boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` whose braces are balanced, or of `\boxed 4`. One pass, however deep boxes are nested."""
    answer, place = None, -1
    opened: list[tuple[int, bool]] = []
    for found in _BRACE.finditer(text):
        if found["bare"]:
            content, begun = found["bare"].rstrip("$.,;"), found.start()
        elif found[0].endswith("{") and found[0] != "\\{":
            opened.append((found.end(), found[0] != "{"))
            continue
        elif found[0] == "}" and opened:
            begun, is_box = opened.pop()
            content = text[begun : found.start()].strip() if is_box and begun > place else ""
        else:
            continue
        if content and begun > place:
            answer, place = content, begun
    return answer


FORMS: Mapping[str, Cut] = {"boxed": _boxed, "number": number_in, "choice": letter_in}
"""The words that `score.answer` may be."""


def by_form(name: str) -> Cut:
    """An entry of `FORMS`. Raises KeyError."""
    return FORMS[name]


def by_path(path: str) -> Cut:
    """The value at a path such as `result.steps[0].answer`, in the JSON that the text is or holds. Raises ValueError for a bad path."""
    steps = path_of(path)
    return lambda text: value_at(text, steps)


def by_pattern(pattern: str, *, last: bool) -> Cut:
    """The first or the last match that is not blank: its first group that took part and is not blank, or all of it without groups.

    Raises ValueError for a pattern that the package `regex` cannot compile. The function raises TooSlow.
    """
    compiled = _compile(pattern)

    def cut(text: str) -> str | None:
        answer = None
        for match in _matches(compiled, text):
            groups = match.groups() if compiled.groups else (match[0],)
            found = next((group.strip() for group in groups if group is not None and group.strip()), None)
            if found is not None:
                answer = found
                if not last:
                    break
        return answer

    return cut


def _matches(compiled: Any, text: str) -> Iterator[Any]:
    try:
        yield from compiled.finditer(text, timeout=LIMIT_S)  # of all matches together
    except TimeoutError:
        raise TooSlow(f"the pattern {compiled.pattern!r} takes longer than {LIMIT_S:g} s for a text of {len(text):,} characters") from None


@cache
def _compile(pattern: str) -> Any:
    import regex  # late: this room loads the standard library alone

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
