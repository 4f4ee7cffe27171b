"""Numbers in a text, as exact fractions, however they are written: `1,000`, `1.000.000`, `-$4.50`, `3 1/2`, `6e3`, `−2`, `٣`."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_MOST_DIGITS, _LARGEST_EXPONENT = 1000, 400
"""Of a number. More are no number: arithmetic with them would keep the engine's process busy."""
_MARKS = str.maketrans({"−": "-", "﹣": "-", "－": "-", "＋": "+", "，": ",", "．": ".", "⁄": "/", "٫": ".", "٬": ","})
_FRAC = re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_GROUPED = r"\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)|\d{1,3}(?:[\u00a0\u2009\u202f'’]\d{3})+(?!\d)"
_DOTTED = r"\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+"
"""As in German and Spanish: dots between groups of three digits. `1.234` alone is a decimal."""
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?<!\d\.)(?:(?<![\w)\]])(?P<sign>[-+])[$€£¥₹₩]?)?"
    rf"(?:(?<!/)(?:(?P<whole>\d+)[ ])?(?P<above>\d+)/(?P<below>\d+)(?![\d/])"
    rf"|(?P<dotted>{_DOTTED})(?![\d.,]\d|\d)"
    # Neither a version (1.2.3) nor a date (12.05.2024) is a number, nor are its parts.
    rf"|(?P<plain>(?:{_GROUPED}|\d+)(?:\.\d+)?(?!\d|\.\d)|(?<!\.)\.\d+)(?:[eE](?P<power>[-+]?\d+)"
    r"|\s*(?:×|·|\\times|\\cdot|\*)\s*10\s*\^\s*\{?(?P<ten>[-+]?\d+)\}?)?)"
)


def value_in(text: str) -> Fraction | None:
    """The last number in a text. None: it holds none."""
    plain = _FRAC.sub(r"\1/\2", _with_ascii_digits(text))
    for found in reversed(list(_NUMBER.finditer(plain))):
        value = _value(found)
        if value is not None:
            return value
    return None


def number_in(text: str) -> str | None:
    """The last number in a text in one form: without separators, leading and trailing zeros; a fraction that is no decimal as `p/q`."""
    value = value_in(text)
    return None if value is None else _written(value)


def _with_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each)) if not each.isascii() and each.isdecimal() else each for each in text.translate(_MARKS))


def _value(found: re.Match[str]) -> Fraction | None:
    sign = -1 if found["sign"] == "-" else 1
    if found["above"] is not None:
        above, below = found["above"], found["below"]
        if max(len(above), len(below)) > _MOST_DIGITS or not int(below):
            return None
        return sign * (Fraction(int(above), int(below)) + int(found["whole"] or 0))
    if found["dotted"] is not None:
        whole, _, part = found["dotted"].partition(",")
        return sign * Fraction(f"{whole.replace('.', '')}.{part or 0}")
    digits = re.sub(r"[^\d.]", "", found["plain"])
    power = found["power"] or found["ten"] or "0"
    if len(digits) > _MOST_DIGITS or len(power) > 9 or abs(int(power)) > _LARGEST_EXPONENT:
        return None
    return sign * Fraction(digits) * Fraction(10) ** int(power)


def _written(value: Fraction) -> str:
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    return f"{'-' if value < 0 else ''}{whole}{f'.{part}' if part else ''}"
