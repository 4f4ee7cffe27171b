"""Counts of samples that encoding has cut, dropped, or left without loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuneyard.data.control_tokens import controls_notes
from tuneyard.data.tokens import Encoded

_EXAMPLES = 5


@dataclass
class Losses:
    """Counts of samples, as in `Encoded`. `muted`: turns without loss. `reasons`, `tools`: any sample has them. `as_text`, `as_tokens`:
    samples that spell a control token, by token (`control_tokens.Spelled`).
    """

    truncated: int = 0
    dropped: int = 0
    cut_answers: int = 0
    alike: int = 0
    muted: int = 0
    reasons: bool = False
    tools: bool = False
    as_text: Counter[str] = field(default_factory=Counter)
    as_tokens: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dropped_examples: list[str] = []

    def add(self, encoded: Encoded) -> None:
        self.truncated += len(encoded.truncated)
        self.dropped += len(encoded.dropped)
        self.cut_answers += encoded.cut_answers
        self.alike += encoded.alike
        self.muted += encoded.muted
        self.reasons, self.tools = self.reasons or encoded.reasons, self.tools or encoded.tools
        self.as_text.update(encoded.as_text)
        self.as_tokens.update(encoded.as_tokens)
        self.dropped_examples.extend(encoded.dropped[: _EXAMPLES - len(self.dropped_examples)])

    def why_none(self) -> str:
        """The end of an error about no samples: the number of dropped samples, with an example."""
        return f": {self.dropped} were dropped, such as {self.dropped_examples[0]}" if self.dropped else ""

    def notes(self) -> Iterator[str]:
        """Warnings about turns without loss, and about control tokens in texts."""
        yield from filter(None, [muted_note(self.muted)])
        yield from controls_notes(self.as_text, self.as_tokens)


def muted_note(muted: int) -> str | None:
    """A warning about `muted` turns without loss; None for 0."""
    if not muted:
        return None
    return (
        f"{muted:,} answers carry no loss: the chat template leaves their reasoning out where other turns follow; "
        "to train on them, write a row for each answer that ends with it"
    )
