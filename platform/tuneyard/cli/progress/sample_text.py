"""A training sample for people: the text that carries loss highlighted, or in «» where there is no colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuneyard.data.visible import visible

if TYPE_CHECKING:
    from rich.text import Text

    from tuneyard.tracking import SampleShown

SHOWN_CHARACTERS = 1500


def highlighted(pieces: Sequence[tuple[str, bool]], *, marks: bool) -> Text:
    """The first characters of a sample."""
    from rich.text import Text

    text, left = Text(), SHOWN_CHARACTERS
    for piece, loss in pieces:
        shown = visible(piece[:left])
        text.append(f"«{shown}»" if loss and marks else shown, style="black on green" if loss else "")
        left -= len(piece)
        if left <= 0:
            return text.append(" …", style="dim")
    return text


def heading(event: SampleShown, *, marks: bool) -> str:
    """The heading of a sample."""
    how = "marked «»" if marks else "highlighted"
    no_end = "no token: name what ends them in generation.stop of score tasks"
    end = "" if event.ends_with is None else f"; answers end with {event.ends_with or no_end}"
    return f"a sample as the model sees it ({how} text carries loss{end})"
