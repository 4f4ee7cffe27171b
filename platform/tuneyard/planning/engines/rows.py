"""Rows of a score task for the speed of its engines: their counted lengths, and the passes that metrics need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuneyard.api import ScoreTask
from tuneyard.metrics import metric_named, needing
from tuneyard.planning.engines.speed import RowLengths

_USUAL_PROMPT = 512.0
_USUAL_CHOICES = 4
"""Choices of a row that has choices of its own."""
_CHOICE_TOKENS = 8.0
"""Tokens of a choice, where they are not counted. An assumption."""


@dataclass(frozen=True, kw_only=True)
class ScoreCount:
    """Facts about the rows of a score task before it runs."""

    rows: int
    """All rows, with those that cannot be scored."""
    prompt_tokens: Sequence[float]
    """Estimated tokens of each prompt that was read, an even selection of the rows that can be scored. Empty: no prompt was read."""
    reference_tokens: float
    """Estimated tokens of a reference, on average; 0: there is none."""
    assumed_tokens: bool
    """Whether characters per token are the usual number because there is no tokenizer."""
    unusable: int = 0
    """Rows that cannot be scored, as far as the selection tells."""
    unusable_why: str = ""
    """Why the first such row cannot be scored."""

    @property
    def prompt(self) -> float:
        """Tokens of a prompt, on average; where no prompt was read, the length that `engine.batch: auto` assumes."""
        return sum(self.prompt_tokens) / len(self.prompt_tokens) if self.prompt_tokens else _USUAL_PROMPT

    def too_long(self, limit: int) -> int:
        """Rows whose prompts have no room for an answer in `limit` tokens."""
        beyond = sum(tokens >= limit for tokens in self.prompt_tokens)
        return round(beyond / len(self.prompt_tokens) * (self.rows - self.unusable)) if beyond else 0

    def within(self, limit: int) -> ScoreCount:
        """The rows that get an answer in `limit` tokens: the others would end as errors."""
        fitting = tuple(tokens for tokens in self.prompt_tokens if tokens < limit)
        return replace(self, rows=self.rows - self.unusable - self.too_long(limit), prompt_tokens=fitting, unusable=0, unusable_why="")


def uncounted(rows: int) -> ScoreCount:
    """Rows whose lengths are not known."""
    return ScoreCount(rows=rows, prompt_tokens=(), reference_tokens=0.0, assumed_tokens=True)


def rows_at_most(task: ScoreTask) -> int | None:
    """The rows that a task takes at most, as far as its JobSpec says so (`data.limit`, a number in `data.sample`)."""
    sample = task.data.sample
    counts = [each for each in (task.data.limit, int(sample) if sample is not None and sample > 1 else None) if each is not None]
    return min(counts, default=None)


def row_lengths(task: ScoreTask, count: ScoreCount, *, max_length: int, output_tokens: float | None = None) -> RowLengths:
    """Tokens of a row on average, of the rows with room for an answer. `output_tokens`: of an answer, as past runs had them; None:
    `generation.maxTokens`, the most that an answer can have.
    """
    prompt = min(count.within(max_length).prompt, max_length - 1.0)
    longest = min(task.generation.max_tokens, max_length - prompt)
    likely = min(output_tokens, longest) if output_tokens is not None else longest
    if task.judge is not None:
        return RowLengths(prompt=prompt, output=likely)
    if task.choices is not None:
        texts = task.choices.texts
        passes = len(texts) if texts else _USUAL_CHOICES
        return RowLengths(prompt=prompt, output=0, evaluated=prompt + _CHOICE_TOKENS, evaluations=passes)
    metrics = [metric_named(name) for name in task.measured]
    answers = not metrics or any(needing(need, metrics) for need in ("output", "samples"))
    return RowLengths(
        prompt=prompt,
        output=likely if answers else 0,
        longest_output=longest if answers and likely < longest else None,
        samples=task.generation.samples,
        evaluated=min(prompt + count.reference_tokens, max_length - 1.0) if needing("likelihood", metrics) else 0.0,
    )
