"""Paths in command lines that a message tells people to copy."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def quoted(path: str | PurePath) -> str:
    """A path or URI as one word of a shell's command line. `./` keeps a leading dash from being read as an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
