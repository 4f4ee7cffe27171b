"""Messages rendered to text by a chat template in Jinja, in transformers' sandbox, with bounds on memory.

The first rendering of a template takes two short turns, and the address space may grow by `_FIRST_MAY_TAKE_BYTES` only: a text of 10 GB
fails there. Every rendering ends at `LONGEST_TEXT` characters, and `time_limit` ends endless loops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.data.json_text import HALF_CHARACTER, has_half_character

LONGEST_TEXT = 256 << 20
_LONGEST_NUMBER_BITS = 1 << 16
_MOST_PIECES = 1_000_000
_MOST_ATTRIBUTES = 1000
_FIRST_MAY_TAKE_BYTES = 2 << 30
_TURNS = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
Span = tuple[int, int]


class TooMuchText(ValueError):
    """A template writes more than any sample needs."""


def jinja_text(template: str, messages: list[Any], *, spans: bool = False, **variables: Any) -> tuple[str, list[Span]]:
    """The text and, with `spans`, the [start, end) of each part that `{% generation %}` marks.

    Raises errors of jinja2 and Python where the template refuses the messages, and BadInput where two short turns take too much memory.
    """
    return _rendered(_checked(template), messages, spans=spans, variables=variables)


@lru_cache(maxsize=64)
def _checked(template: str) -> Any:
    """The compiled template, after one trial rendering. A refusal of the trial's messages is ignored."""
    import jinja2
    from transformers.utils.chat_template_utils import _compile_jinja_template

    compiled = None
    try:
        with _little_memory():  # compiling evaluates constant expressions
            environment = _compile_jinja_template(template).environment
            environment.intercepted_binops = frozenset(_BOUNDED)
            environment.binop_table |= _BOUNDED
            environment.is_safe_attribute = _remembered(environment.is_safe_attribute)
            compiled = environment.from_string(template)
            _rendered(compiled, _TURNS, spans=False, variables={"add_generation_prompt": True})
    except MemoryError as error:
        cause = f"a chat template takes more than {_FIRST_MAY_TAKE_BYTES >> 30} GiB for two short turns"
        raise BadInput(cause, "look for a text in it that is repeated very often, or set data.chatTemplate") from error
    except (jinja2.exceptions.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        if compiled is None:
            raise
    return compiled


def _remembered(is_safe: Callable[[Any, str, Any], bool]) -> Callable[[Any, str, Any], bool]:
    """`is_safe`, cached by type and attribute. Its answer depends on these alone, and templates ask again for each message."""
    known: dict[tuple[type, str], bool] = {}

    def remembered(thing: Any, attribute: str, value: Any) -> bool:
        key = type(thing), attribute
        if key not in known:
            if len(known) >= _MOST_ATTRIBUTES:  # a template may make up names
                known.clear()
            known[key] = is_safe(thing, attribute, value)
        return known[key]

    return remembered


def _times(left: Any, right: Any) -> Any:
    for repeated, count in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(repeated, (str, list, tuple)) and len(repeated) * count > LONGEST_TEXT:
            raise TooMuchText(f"it repeats a text {count} times")
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _LONGEST_NUMBER_BITS:
        raise TooMuchText(f"{left} ** {right} is too large for a text")
    return left**right


_BOUNDED = {"*": _times, "**": _power}


def _rendered(compiled: Any, messages: list[Any], *, spans: bool, variables: dict[str, Any]) -> tuple[str, list[Span]]:
    pieces: list[str] = []
    marks: list[Span] = []
    given = {"tools": None, "documents": None, "add_generation_prompt": False} | variables
    if not spans:
        return _joined(compiled, pieces, messages, given), []
    with compiled.environment.activate_tracker(pieces, marks):
        text = _joined(compiled, pieces, messages, given)
    return text, [(int(start), int(end)) for start, end in marks]


def _joined(compiled: Any, pieces: list[str], messages: list[Any], given: dict[str, Any]) -> str:
    length = 0
    for piece in compiled.generate(messages=messages, **given):
        pieces.append(piece)
        length += len(piece)
        if length > LONGEST_TEXT or len(pieces) > _MOST_PIECES:
            raise TooMuchText(f"it writes more than {LONGEST_TEXT >> 20} million characters, or {_MOST_PIECES:,} pieces")
    text = "".join(pieces)
    if not text.isascii() and has_half_character(text):
        raise ValueError(f"it writes a text that is {HALF_CHARACTER}")
    return text


@contextmanager
def _little_memory() -> Iterator[None]:
    """Limits the address space. Only Linux enforces such a limit."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = held + _FIRST_MAY_TAKE_BYTES
    if soft not in (-1, resource.RLIM_INFINITY):
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
