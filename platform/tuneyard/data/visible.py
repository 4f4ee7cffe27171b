"""Untrusted text on a terminal or in a log: characters that move the cursor or change the writing direction are escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""C0 except tab and newline, DEL, C1, characters that change the writing direction (https://trojansource.codes), and surrogates, which no
stream can write."""


def visible(text: str) -> str:
    """`text` with control characters as `\\u001b`, which JSON reads as the same character."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def marked(pieces: Sequence[tuple[str, bool]], limit: int) -> str:
    """The first `limit` characters as plain text, with «» around pieces with loss."""
    shown, left = "", limit
    for text, loss in pieces:
        part = visible(text[:left])
        shown += f"«{part}»" if loss else part
        left -= len(text)
        if left <= 0:
            return f"{shown} …"
    return shown
