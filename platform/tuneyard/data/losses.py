"""What became of samples while they were encoded: cut, left out, without loss."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.data.tokens import Encoded

_EXAMPLES = 5


@dataclass
class Losses:
    """Samples that were cut or left out because of their length, turns that carry no loss, and what samples hold."""

    truncated: int = 0
    dropped: int = 0
    muted: int = 0
    reasons: bool = False
    tools: bool = False

    def __post_init__(self) -> None:
        self.dropped_examples: list[str] = []

    def add(self, encoded: Encoded) -> None:
        self.truncated += len(encoded.truncated)
        self.dropped += len(encoded.dropped)
        self.muted += encoded.muted
        self.reasons, self.tools = self.reasons or encoded.reasons, self.tools or encoded.tools
        self.dropped_examples.extend(encoded.dropped[: _EXAMPLES - len(self.dropped_examples)])

    def why_none(self) -> str:
        """Why nothing is left, where samples were dropped."""
        return f": {self.dropped} were dropped, such as {self.dropped_examples[0]}" if self.dropped else ""

    def note(self) -> str | None:
        """What a person should know of turns without loss."""
        return muted_note(self.muted)


def muted_note(muted: int) -> str | None:
    """What a person should know of so many turns without loss."""
    if not muted:
        return None
    return (
        f"{muted:,} answers carry no loss: the chat template leaves their reasoning out where other turns follow; "
        "to train on them, write a row for each answer that ends with it"
    )
