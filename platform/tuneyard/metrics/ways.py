"""How the values of a task's rows are computed: the settings of a score task that metrics read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ways:
    """One for all rows of a task."""

    ignore: frozenset[str] = frozenset()
    """What exact match leaves out of both texts (see `answers.alike`)."""
    bleu: str = "13a"
    """A tokenizer of sacrebleu."""
    tolerance: float = 0.0
    """How far a number may be from the reference's: in its own unit,"""
    relative_tolerance: float = 0.0
    """or as a share of the reference's number. The larger one of the two holds."""
    k: int = 1
    """Samples that `pass_at_k` draws from those of a row."""
    right: str = "exact_match"
    """The metric whose value 1 makes a sample right."""


PLAIN = Ways()
