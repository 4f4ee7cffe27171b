"""JSON from data sets, with reasons for people where a text cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

TOO_DEEP = "not usable JSON: nested too deeply"
HALF_CHARACTER = "not text: half of a surrogate pair, such as \\ud83d alone; a character was cut in two"
_LONG_NUMBER = "not usable JSON: a number of more than 4,300 digits"


class KeyTwice(ValueError):
    """An object has the same key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise KeyTwice(f"an object has the key {twice} twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def parsed_json(text: str | bytes) -> Any:
    """The parsed value. Raises ValueError with the reason, and UnicodeDecodeError for bytes that are not UTF-8."""
    if isinstance(text, bytes):  # json.loads() accepts surrogates, and guesses UTF-16 and UTF-32
        text = text.decode()
    try:
        value = _DECODER.decode(text)
    except (UnicodeDecodeError, json.JSONDecodeError, KeyTwice):
        raise
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except ValueError as error:  # Python's own limit
        raise ValueError(_LONG_NUMBER) from error
    if "\\u" in text and has_half_character(value):
        raise ValueError(HALF_CHARACTER)
    return value


def parsed_documents(text: str) -> Iterator[Any]:
    """The values of a text, which may hold several documents in sequence. Raises ValueError, RecursionError."""
    place = _after_blanks(text, 0)
    while True:
        value, place = _DECODER.raw_decode(text, place)
        yield value
        place = _after_blanks(text, place)
        if place == len(text):
            return


def _after_blanks(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t", "\n", "\r") and place < len(text):
        place += 1
    return place


def has_half_character(value: Any) -> bool:
    """Whether a value holds a Unicode surrogate. JSON can write it, but no tokenizer or Parquet file takes it.

    Raises ValueError for a value that is nested too deeply.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    return False
