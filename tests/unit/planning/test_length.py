"""Steps and rows of a train task from a count of its data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import TrainTask
from tuneyard.planning import DataCount, Interval, length_of


def task(data: dict[str, Any] | None = None, **changes: Any) -> TrainTask:
    body = {"model": {"name": "m"}, "data": {"source": "d.jsonl", "maxLength": 100} | (data or {}), "batch": {"global": 8}} | changes
    return TrainTask.model_validate(body)


def counted(samples: float = 80, *characters: int, low: float | None = None, high: float | None = None) -> DataCount:
    return DataCount(
        samples=Interval(samples, low or samples, high or samples),
        characters=characters or (200,),
        characters_per_token=Interval(4.0, 4.0, 4.0),
        assumed_tokens=False,
    )


def steps(task: TrainTask, count: DataCount | None) -> tuple[float, float, float]:
    length = length_of(task, count)
    assert length is not None
    return length.steps.likely, length.steps.low, length.steps.high


def test_rows_are_samples_where_they_are_padded() -> None:
    assert steps(task(epochs=3), counted(80)) == (30, 30, 30)
    assert steps(task(epochs=3, data={"validationFraction": 0.1}), counted(80)) == (27, 27, 27)
    assert steps(task(), counted(81)) == (11, 11, 11)


def test_a_sample_of_the_data_gives_an_interval() -> None:
    assert steps(task(), counted(800, low=720, high=880)) == (100, 90, 110)


def test_packed_rows_are_tokens_over_the_length_of_a_row_and_overlong_samples_fill_one() -> None:
    likely, low, high = steps(task({"pack": True}), counted(1600, 200))  # 1,600 samples of 50 tokens: 800 rows, if none has a gap
    assert low == 100
    assert low <= likely <= high == 106
    assert steps(task({"pack": True}), counted(80, 4000))[1] == 10, "cut to a row each"


def test_steps_that_the_task_names_are_its_length_whatever_the_data() -> None:
    assert steps(task(steps=7), None) == (7, 7, 7)
    assert steps(task(steps=7), counted(100_000)) == (7, 7, 7)


def test_without_steps_and_without_data_the_length_is_not_known() -> None:
    assert length_of(task(), None) is None


@pytest.mark.parametrize(("micro_batch", "tokens"), [(1, 30), (2, 40), (1000, 50)])
def test_a_padded_row_is_as_long_as_the_longest_of_its_micro_batch(micro_batch: int, tokens: int) -> None:
    """Samples of 10 and of 50 tokens, equally many: of one row the mean is 30, of two the longer one is 50 three times of four."""
    length = length_of(task(), counted(80, 40, 200))
    assert length is not None
    assert length.padded(micro_batch, 100) == tokens


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=20), st.integers(1, 64), st.integers(8, 4096))
def test_rows_are_never_longer_than_they_may_be_and_grow_with_the_micro_batch(sizes: list[int], micro: int, most: int) -> None:
    length = length_of(task({"maxLength": most}), counted(80, *sizes))
    assert length is not None
    assert 1 <= length.padded(micro, most) <= length.padded(2 * micro, most) <= most


def test_full_rows_are_assumed_of_packed_ones_and_of_data_that_were_not_read() -> None:
    for length in (length_of(task({"pack": True}), counted()), length_of(task(steps=3), None)):
        assert length is not None
        assert length.padded(4, 100) == 100


def test_rounding_of_a_mean_adds_no_token() -> None:
    length = length_of(task({"maxLength": 8}), counted(80, 1, 1, 12, 12, 12))
    assert length is not None
    assert length.padded(55, 8) == length.padded(110, 8) == 3
