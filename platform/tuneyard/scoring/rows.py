"""One row of the data set after the engine had it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ScoredRow:
    """What becomes of row `row` (its place in the data set, from 0). None: not asked for, not to be had, or an error."""

    row: int
    reference: str | None = None
    output: str | None = None
    error: str | None = None
    finish_reason: str | None = None
    """stop (end token or stop text) or length."""
    input_tokens: int = 0
    output_tokens: int = 0
    latency_s: float | None = None
    """From the hand-over to the engine to the last token."""
    nll: float | None = None
    """Negative log-likelihood of the reference's tokens together, in nats."""
    reference_tokens: int = 0
    evaluated_tokens: int = 0
    exact_match: float | None = None
    rouge_l: float | None = None
