"""Renders a log for `kubectl get --raw`, which prints an answer as it is: control characters become visible, and no terminal obeys them."""

from __future__ import annotations

from tuneyard.cluster.log_api import LogAnswer
from tuneyard.data.visible import visible


def as_text(answer: LogAnswer) -> str:
    """The lines of an answer, each with its source if there are several. The cursors are left out."""
    if len(answer.parts) == 1:
        return visible("".join(answer.parts.values()))
    lines = [f"[{source}] {line}\n" for source, text in answer.parts.items() for line in text.removesuffix("\n").split("\n") if text]
    return visible("".join(lines))
