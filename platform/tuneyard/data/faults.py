"""Bad rows as examples for people: one for each different fault, the most frequent first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

EXAMPLES = 5
_MOST_FAULTS, _SHOWN = 50, 3
_VALUES = re.compile(r"\"[^\"]*\"|'[^']*'|\([^)]*\)|\d[\d.,]*")
"""Parts of a reason that differ between rows with the same fault."""


class Faults:
    """Collects the places and reasons of bad rows, a few for each fault."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, example: str, count: int = 1) -> None:
        """`example`: `place: reason`. Of more than 50 different faults, the first 50 are kept."""
        fault = _fault_of(example)
        if fault in self._examples or len(self._examples) < _MOST_FAULTS:
            self._counts[fault] += count
            kept = self._examples.setdefault(fault, [])
            if len(kept) < EXAMPLES:
                kept.append(example)

    def examples(self) -> list[str]:
        """EXAMPLES at most: one for each fault, the most frequent fault first, and then more of the most frequent ones."""
        ordered = [self._examples[fault] for fault, _ in self._counts.most_common()]
        return [*(each[0] for each in ordered), *(example for each in ordered for example in each[1:])][:EXAMPLES]


def one_of_each(examples: Sequence[str]) -> str:
    """The first example of each fault, three at most, in one line."""
    found: dict[str, str] = {}
    for example in examples:
        found.setdefault(_fault_of(example), example)
    return "; ".join(list(found.values())[:_SHOWN])


def _fault_of(example: str) -> str:
    return _VALUES.sub("", example.partition(": ")[2])
