"""A log for `kubectl get --raw`, which prints what it is answered: control characters of others are shown, and no terminal obeys them."""

from __future__ import annotations

from tuneyard.cluster.log_api import LogAnswer
from tuneyard.data.visible import visible


def as_text(answer: LogAnswer) -> str:
    """The lines, each with its source where there are several; the cursor is left out."""
    if len(answer.parts) == 1:
        return visible("".join(answer.parts.values()))
    lines = [f"[{source}] {line}\n" for source, text in answer.parts.items() for line in text.removesuffix("\n").split("\n") if text]
    return visible("".join(lines))
