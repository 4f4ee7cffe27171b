"""How long a train task is, in steps and in tokens per row, from what was counted of its data. Pure.

A task with `steps` is as long as it says. One with `epochs` is as long as its data: rows are samples where they are padded, and tokens over
`maxLength` where they are packed. A count of a sample of the data gives an interval instead of a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.api import TrainTask

PACKED = 0.95
"""Share of a packed row that holds tokens, at least, where samples are shorter than a row by far (best-fit decreasing; 0.98 is usual)."""


@dataclass(frozen=True)
class Interval:
    """A likely value, and the range that holds the true one nineteen times of twenty; all three are equal for what was counted."""

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
    """What is known of a data set before it is tokenised."""

    samples: Interval
    characters: Sequence[int]
    """Of each sample that was looked at: texts of all its columns that are trained on or prompted with."""
    characters_per_token: Interval
    assumed_tokens: bool
    """Characters per token are what is usual, as there is no tokenizer to ask."""
    splits: bool = False
    """Documents longer than a row go on in the next one: plain text that is packed."""
    streamed: bool = False
    """Rows are made while the task trains."""
    format: str = ""
    files: str = ""
    """As `data_rates.usual_rate` takes them."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """`rows` None: the task says its steps itself. `tokens_per_row`: without padding, of rows that are not packed; None: not known."""

    steps: Interval
    rows: Interval | None = None
    sample_tokens: tuple[float, ...] = ()
    """Of rows, in tokens, ascending; empty where rows are full, or nothing is known."""

    def padded(self, micro_batch: int, most: int) -> int:
        """Tokens of a row of a micro-batch, which is padded to its longest row: the mean over micro-batches of rows drawn at random."""
        lengths = self.sample_tokens
        if not lengths:
            return most
        count = len(lengths)
        mean = sum(value * (((i + 1) / count) ** micro_batch - (i / count) ** micro_batch) for i, value in enumerate(lengths))
        return max(1, min(most, math.ceil(mean - 1e-9)))  # what rounding adds is no token


def steps_of_epochs(epochs: float, rows: float, global_batch: int) -> int:
    """Optimizer steps until every row was seen `epochs` times; at least 1."""
    return max(1, math.ceil(epochs * rows / global_batch - 1e-9))


def length_of(task: TrainTask, count: DataCount | None) -> Length | None:
    """None where that depends on data that were not counted."""
    if count is None:
        return Length(steps=Interval.exactly(task.steps)) if task.steps else None
    lengths = () if task.data.pack else _sample_tokens(task, count)
    if task.steps:
        return Length(steps=Interval.exactly(task.steps), sample_tokens=lengths)
    rows = (_packed_rows(task, count) if task.data.pack else count.samples).times(1 - task.data.validation_fraction)
    epochs, batch = task.epochs or 1.0, task.batch.global_
    steps = Interval(*(steps_of_epochs(epochs, value, batch) for value in (rows.likely, rows.low, rows.high)))
    return Length(steps=steps, rows=rows, sample_tokens=lengths)


def _sample_tokens(task: TrainTask, count: DataCount) -> tuple[float, ...]:
    most, ratio = task.data.max_length, count.characters_per_token.likely
    return tuple(min(most, max(1.0, size / ratio)) for size in sorted(count.characters))


def _packed_rows(task: TrainTask, count: DataCount) -> Interval:
    """Tokens of all samples over the tokens of a row. What is longer than a row fills it alone, or goes on in the next."""
    most = task.data.max_length

    def rows(samples: float, ratio: float, filled: float) -> float:
        tokens = [size / ratio for size in count.characters]
        mean = sum(tokens if count.splits else (min(most, each) for each in tokens)) / max(1, len(tokens))
        return max(1.0, samples * mean / most / filled)

    samples, ratio = count.samples, count.characters_per_token
    return Interval(
        rows(samples.likely, ratio.likely, (1 + PACKED) / 2), rows(samples.low, ratio.high, 1.0), rows(samples.high, ratio.low, PACKED)
    )
