"""Length of a train task, in steps and in tokens per row, from a count of its data. Pure.

`steps` is the length itself. `epochs` needs the number of rows: samples if rows are padded; if they are packed, tokens over `maxLength`. A
count of only a sample of the data gives an interval instead of a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.api import TrainTask

PACKED = 0.95
"""Share of a packed row that holds tokens, at least, where samples are far shorter than a row (best-fit decreasing; 0.98 is usual)."""


@dataclass(frozen=True)
class Interval:
    """A likely value and its 95 % interval. All three are equal for an exact count."""

    likely: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Interval:
        return cls(value, value, value)

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> Interval:
        return Interval(self.likely * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, kw_only=True)
class DataCount:
    """Facts about a data set before tokenisation."""

    samples: Interval
    characters: Sequence[int]
    """Characters of each sample in the count: texts of all columns that are trained on or are prompts."""
    characters_per_token: Interval
    assumed_tokens: bool
    """Whether characters per token are the usual number because there is no tokenizer."""
    overhead_tokens: float = 0.0
    """Tokens of each sample beside those of its characters: what a chat template adds."""
    splits: bool = False
    """Whether documents longer than a row continue in the next one: packed plain text."""
    streamed: bool = False
    """Whether rows are produced while the task trains."""
    format: str = ""
    files: str = ""
    """`format` and `files` as in `data_rates.usual_rate`."""

    def tokens(self, ratio: float) -> list[float]:
        """Tokens of each sample in the count, at `ratio` characters a token."""
        return [max(1.0, self.overhead_tokens + size / ratio) for size in self.characters]


@dataclass(frozen=True, kw_only=True)
class Length:
    """`rows` None: the task gives its steps."""

    steps: Interval
    rows: Interval | None = None
    sample_tokens: tuple[float, ...] = ()
    """Tokens of each row, ascending; empty where rows are full or their length is unknown."""

    def padded(self, micro_batch: int, most: int) -> int:
        """Mean tokens of a row in a micro-batch, which is padded to its longest row, for rows drawn at random."""
        lengths = self.sample_tokens
        if not lengths:
            return most
        count = len(lengths)
        mean = sum(value * (((i + 1) / count) ** micro_batch - (i / count) ** micro_batch) for i, value in enumerate(lengths))
        return max(1, min(most, math.ceil(mean - 1e-9)))  # rounding errors add no token


def steps_of_epochs(epochs: float, rows: float, global_batch: int) -> int:
    """Optimizer steps until every row has been seen `epochs` times; at least 1."""
    return max(1, math.ceil(epochs * rows / global_batch - 1e-9))


def length_of(task: TrainTask, count: DataCount | None) -> Length | None:
    """The length of `task`; None where it depends on uncounted data."""
    if count is None:
        return Length(steps=Interval.exactly(task.steps)) if task.steps else None
    lengths = () if task.data.pack else _sample_tokens(task, count)
    if task.steps:
        return Length(steps=Interval.exactly(task.steps), sample_tokens=lengths)
    rows = (_packed_rows(task, count) if task.data.pack else count.samples).times(1 - task.data.validation_fraction)
    epochs, batch = task.epochs or 1.0, task.batch.rows
    steps = Interval(*(steps_of_epochs(epochs, value, batch) for value in (rows.likely, rows.low, rows.high)))
    return Length(steps=steps, rows=rows, sample_tokens=lengths)


def _sample_tokens(task: TrainTask, count: DataCount) -> tuple[float, ...]:
    most = task.data.max_length
    return tuple(sorted(min(most, tokens) for tokens in count.tokens(count.characters_per_token.likely)))


def _packed_rows(task: TrainTask, count: DataCount) -> Interval:
    """Tokens of all samples over the tokens of a row. A sample longer than a row fills it alone, or continues in the next."""
    most = task.data.max_length

    def rows(samples: float, ratio: float, filled: float) -> float:
        tokens = count.tokens(ratio)
        mean = sum(tokens if count.splits else (min(most, each) for each in tokens)) / max(1, len(tokens))
        return max(1.0, samples * mean / most / filled)

    samples, ratio = count.samples, count.characters_per_token
    return Interval(
        rows(samples.likely, ratio.likely, (1 + PACKED) / 2), rows(samples.low, ratio.high, 1.0), rows(samples.high, ratio.low, PACKED)
    )
