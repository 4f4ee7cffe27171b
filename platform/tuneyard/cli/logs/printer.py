"""Lines of several ranks on one screen: each line has a prefix with the name of its rank, in a colour of its own."""

from __future__ import annotations

from typing import TextIO

from tuneyard.cli.terminal import own, with_colours, without_colours
from tuneyard.data.visible import visible

_RETURN = "\r"
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""ANSI foreground codes that are readable on dark and on light."""


class LogPrinter:
    """`prefixed`: put `[train rank 1] ` in front of each line; `coloured`: in a colour per name, and with the line's own colours."""

    def __init__(self, stream: TextIO, *, prefixed: bool, coloured: bool) -> None:
        self._stream = own(stream)
        self._prefixed = prefixed
        self._coloured = coloured
        self._known: dict[str, int] = {}

    def __call__(self, name: str, text: str) -> None:
        prefix = self._prefix(name) if self._prefixed else ""
        for line in text.removesuffix("\n").split("\n") if text else []:
            # A progress bar redraws its line with carriage returns: only its last state counts.
            shown = with_colours if self._coloured else without_colours
            print(f"{prefix}{shown(line.rstrip(_RETURN).rpartition(_RETURN)[2])}", file=self._stream)
        self._stream.flush()

    def _prefix(self, name: str) -> str:
        name = visible(name)
        if not self._coloured:
            return f"[{name}] "
        colour = _COLOURS[self._known.setdefault(name, len(self._known)) % len(_COLOURS)]
        return f"\033[{colour}m[{name}]\033[0m "


def speaker(task: str, source: str, attempt: int | None = None) -> str:
    """`train rank 1`, `train driver`; with an attempt `train attempt 2 rank 1`."""
    again = f" attempt {attempt}" if attempt is not None else ""
    return f"{task}{again} {source.replace('-', ' ')}"
