"""Statistics of training rows for `normalize`: exact, in any order and any batches, and refused where there is nothing to scale by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.data.tables import Pipeline, fitted
from tuneyard.data.tables.transforms import statistics
from tuneyard.data.tables.transforms.moments import Moments


def exact(values: Iterable[float]) -> tuple[float, float]:
    """Mean and variance in rational numbers, rounded once."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    return float(mean), float(sum((number - mean) ** 2 for number in numbers) / len(numbers))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=50), st.integers(0, 50))
def test_sums_are_exact_in_any_batches_and_any_order(values: list[float], cut: int) -> None:
    whole, parts = Moments(), Moments()
    whole.add(np.array(values))
    for part in (values[cut:], values[:cut], [math.nan, math.inf]):
        parts.add(np.array(part, dtype=np.float64))
    assert (whole.mean, whole.variance) == (parts.mean, parts.variance) == exact(values)
    assert (parts.count, parts.missing) == (len(values), 2)


def test_many_numbers_far_from_zero_keep_their_variance() -> None:
    values = np.random.default_rng(0).normal(1e9, 1e-3, 100_000)
    moments = Moments()
    moments.add(values)
    assert (moments.mean, moments.variance) == exact(values.tolist())


ROWS = pa.RecordBatch.from_pydict(
    {
        "price": [1.0, None, 3.0, math.nan, 8.0, 4.0],
        "counts": [[1, 2], [], None, [5, None], [6], [7]],
        "user": ["a", "b", "c", "d", "e", "f"],
    }
)


def rows_of(columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Batches of one, four and one row, with these columns alone."""
    read = ROWS.select(list(columns))
    return [read.slice(0, 1), read.slice(1, 4), read.slice(5)]


def normalize(name: str, output: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"op": "normalize", "inputs": [name], "output": output or name, **fields}


def test_values_are_scaled_by_the_rows_that_were_given() -> None:
    steps = fitted(Pipeline.of([normalize("price"), normalize("counts", "scaled")]), rows_of)
    made = steps.run(ROWS)
    mean, variance = exact([1, 3, 8, 4])
    expected = [None if value is None else (value - mean) / math.sqrt(variance) for value in ROWS.column("price").to_pylist()]
    assert made.column("price").to_pylist() == pytest.approx(expected, nan_ok=True)
    assert [len(row or ()) for row in made.column("scaled").to_pylist()] == [2, 0, 0, 1, 1, 1]
    assert Pipeline.model_validate_json(steps.model_dump_json()) == steps


def test_a_chain_takes_a_pass_for_each_step_that_depends_on_another() -> None:
    passes: list[Sequence[str]] = []

    def rows(columns: Sequence[str]) -> list[pa.RecordBatch]:
        passes.append(columns)
        return rows_of(columns)

    clamp = {"op": "clamp", "inputs": ["price"], "output": "price", "low": -0.5, "high": 0.5}
    steps = fitted(Pipeline.of([normalize("price"), clamp, normalize("price"), normalize("counts")]), rows)
    assert passes == [("price", "counts"), ("price",)]
    before = Pipeline(steps=steps.steps[:2]).run(ROWS).column("price").to_pylist()
    assert (steps.steps[2].mean, steps.steps[2].variance) == exact(v for v in before if v is not None and math.isfinite(v))


def test_sampling_leaves_rows_out_wherever_it_stands_and_so_does_a_mask() -> None:
    sampling = {"op": "sampling", "key": "user", "rate": 0.5}
    kept = Pipeline.of([sampling]).run(ROWS)
    assert 0 < kept.num_rows < ROWS.num_rows
    expected = exact(value for value in kept.column("price").to_pylist() if value is not None and math.isfinite(value))
    for steps in ([sampling, normalize("price")], [normalize("price"), sampling]):
        [found] = statistics(Pipeline.of(steps), rows_of)
        assert (found.mean, found.variance) == expected
    mask = np.array([True, True, False, True, False, True])
    [found] = statistics(Pipeline.of([normalize("price")]), rows_of, mask)
    assert (found.mean, found.variance, found.values, found.missing) == (*exact([1, 4]), 2, 1)


def test_a_declared_mean_and_variance_read_no_row() -> None:
    def rows(_: Sequence[str]) -> list[pa.RecordBatch]:
        raise AssertionError

    steps = Pipeline.of([normalize("price", mean=1, variance=4)])
    assert fitted(steps, rows) == steps
    assert fitted(Pipeline(), rows) == Pipeline()


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([3.5, None, 3.5]), "step 1 (normalize) of x: the 2 values of the training rows have a variance of 0; their mean is 3.5"),
        (pa.array([1.0]), "the 1 values"),
        (pa.nulls(3), "step 1 (normalize) of x: the training rows have no finite value"),
        (pa.nulls(3, pa.float64()), "no finite value"),
        (pa.array([math.nan, math.inf]), "no finite value"),
        (pa.array([], pa.float64()), "no finite value"),
        (pa.array([1.7e308, -1.7e308]), "the variance is beyond the largest double"),
    ],
)
def test_a_column_that_cannot_be_scaled_is_refused(column: pa.Array, said: str) -> None:
    with pytest.raises(BadInput) as error:
        fitted(Pipeline.of([normalize("x")]), lambda _: [pa.RecordBatch.from_arrays([column], ["x"])])
    assert said in error.value.cause
    assert "mean and variance" in error.value.next_step or "clamp" in error.value.next_step


def test_steps_without_statistics_can_be_checked_and_not_run() -> None:
    steps = Pipeline.of([normalize("price")])
    assert steps.check(ROWS.schema).field("price").type == pa.float64()
    with pytest.raises(BadInput, match="normalize of price has no mean and variance yet"):
        steps.run(ROWS)
