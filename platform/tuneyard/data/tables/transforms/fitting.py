"""Statistics of the steps that need them (`normalize`), from the rows that a model is trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.tables.transforms.lists import Lists, is_list
from tuneyard.data.tables.transforms.moments import Moments
from tuneyard.data.tables.transforms.pipeline import AnyStep, Pipeline

Pass = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
"""A pass over the training rows, in batches that have at least the given columns. It may be called several times."""


@dataclass(frozen=True)
class Statistic:
    """Of a step: its place among the steps, mean and variance, the number of values, and the number of NaN and infinite ones."""

    step: int
    mean: float
    variance: float
    values: int
    missing: int


def fitted(steps: Pipeline, rows: Pass) -> Pipeline:
    """`steps` with the mean and variance of each `normalize` that has none, of its input in `rows`.

    The variance is the mean squared distance from the mean. Null, NaN and infinite values do not count, and sampling leaves rows out. Sums
    are exact: the order of rows does not change them. Raises BadInput for an input without values, or whose values are all equal.
    """
    return with_statistics(steps, statistics(steps, rows))


def with_statistics(steps: Pipeline, found: Iterable[Statistic]) -> Pipeline:
    """`steps` with these statistics."""
    made: list[AnyStep] = list(steps.steps)
    for each in found:
        made[each.step] = steps.normalize_at(each.step).with_statistics(each.mean, each.variance)
    return Pipeline(steps=tuple(made))


def statistics(steps: Pipeline, rows: Pass, kept: npt.NDArray[np.bool_] | None = None) -> list[Statistic]:
    """Statistics for `with_statistics`. `kept`: of the rows that sampling leaves, those that count; None: all.

    A step that depends on another step without statistics waits for the next pass over the rows. Raises BadInput as `fitted` does.
    """
    found: list[Statistic] = []
    while waiting := steps.measured:
        ready = [at for at in waiting if not Pipeline(steps=steps.steps[:at]).making(steps.normalize_at(at).inputs).measured]
        passed = [_statistic(steps, at, moments) for at, moments in _moments(steps, ready, rows, kept).items()]
        steps = with_statistics(steps, passed)
        found += passed
    return found


def _moments(steps: Pipeline, ready: Sequence[int], rows: Pass, kept: npt.NDArray[np.bool_] | None) -> dict[int, Moments]:
    names = {at: f"\0input of step {at}" for at in ready}
    copies = _with_copies(steps, names).making(names.values())
    moments, done = {at: Moments() for at in ready}, 0
    for read in rows(copies.features):
        made = copies.run(read)
        counted = slice(None) if kept is None else np.flatnonzero(kept[done : done + made.num_rows])
        done += made.num_rows
        for at, name in names.items():
            column = made.column(name)
            moments[at].add(_values(column if kept is None else column.take(pa.array(counted))))
    return moments


def _with_copies(steps: Pipeline, names: dict[int, str]) -> Pipeline:
    """`steps` that also keep the input of some steps under other names: a later step may replace it."""
    made: list[AnyStep] = []
    for at, step in enumerate(steps.steps):
        if at in names:
            made.append(steps.normalize_at(at).with_statistics(0.0, 1.0).model_copy(update={"output": names[at]}))
        made.append(step)
    return Pipeline(steps=tuple(made))


def _values(column: pa.Array) -> npt.NDArray[np.float64]:
    if pa.types.is_null(column.type):
        return np.zeros(0)
    values = Lists.of(column).values if is_list(column.type) else column.drop_null().to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)


def _statistic(steps: Pipeline, at: int, moments: Moments) -> Statistic:
    where = f"step {at + 1} (normalize) of {steps.normalize_at(at).inputs[0]}"
    if not moments.count:
        raise BadInput(f"{where}: the training rows have no finite value", "leave the step out, or give it mean and variance")
    try:
        mean, variance = moments.mean, moments.variance
    except OverflowError:
        raise BadInput(f"{where}: the variance is beyond the largest double", "clamp the values first") from None
    if variance == 0:
        raise BadInput(
            f"{where}: the {moments.count:,} values of the training rows have a variance of 0; their mean is {mean:g}",
            "leave the step out, or give it mean and variance",
        )
    return Statistic(at, mean, variance, moments.count, moments.missing)
