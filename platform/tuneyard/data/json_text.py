"""JSON from data sets, with reasons for people where a text cannot be used."""

from __future__ import annotations

import json
from typing import Any

TOO_DEEP = "not usable JSON: nested too deeply"
HALF_CHARACTER = "not text: half of a surrogate pair, such as \\ud83d alone; a character was cut in two"
_LONG_NUMBER = "not usable JSON: a number of more than 4,300 digits"


def parsed_json(text: str | bytes) -> Any:
    """The parsed value. Raises ValueError with the reason, and UnicodeDecodeError for bytes that are not UTF-8."""
    if isinstance(text, bytes):  # json.loads() accepts surrogates, and guesses UTF-16 and UTF-32
        text = text.decode()
    try:
        value = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except ValueError as error:  # Python's own limit
        raise ValueError(_LONG_NUMBER) from error
    if "\\u" in text and has_half_character(value):
        raise ValueError(HALF_CHARACTER)
    return value


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
