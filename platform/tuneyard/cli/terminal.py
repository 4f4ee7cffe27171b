"""Texts of others (names, messages, log lines) on this terminal: control characters are shown, and have no effect.

Commands that print texts of other people run inside `guarded`, which passes all output through `visible`. Live views and coloured prefixes
draw on the terminal itself: they write to `own(stream)`, and pass the texts of others through `visible` themselves.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, cast

from tuneyard.data.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
"""SGR of ECMA-48: the look of the following letters. No other sequence passes."""
_PLAIN = "\x1b[0m"


def with_colours(text: str) -> str:
    """As `visible`, with the colours and weights of letters. They end with the text."""
    texts, colours = _COLOUR.split(text), _COLOUR.findall(text)
    shown = "".join(visible(part) + colour for part, colour in zip_longest(texts, colours, fillvalue=""))
    return shown + _PLAIN if colours else shown


def without_colours(text: str) -> str:
    """As `visible`, without colours."""
    return visible(_COLOUR.sub("", text))


def own(stream: TextIO) -> TextIO:
    """The stream below a guarded one."""
    return stream.below if isinstance(stream, _Guarded) else stream


@contextmanager
def guarded() -> Iterator[None]:
    """Control characters that are printed on stdout and stderr have no effect."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Guarded(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def console(*, stderr: bool = False) -> Console:
    """A console of rich's that draws on the terminal itself, and shows text as `visible` makes it."""
    return _visible_console(file=own(sys.stderr if stderr else sys.stdout))


def recording_console(width: int) -> Console:
    """A console that prints nowhere. Its content is exported as HTML or text."""
    # Without `force_jupyter`, rich would show each print by itself in a notebook, one below the other.
    return _visible_console(
        file=io.StringIO(), record=True, width=width, color_system="truecolor", force_terminal=True, force_jupyter=False
    )


def _visible_console(**options: Any) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Visible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Visible(**options)


class _Guarded:
    """A text stream on which only tabs and newlines have an effect."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        self.below.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)
