"""Which rows are read when: the same for any number of workers, and from any step on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.data.order import Order
from tuneyard.planning import steps_of_epochs
from tuneyard.training.order import Batches, evaluation_batches


def batches(*, rows: int, micro: int, accumulate: int, rank: int, workers: int, start: int = 0, stop: int = 5) -> Batches:
    return Batches(
        rows_at=Order(rows, seed=3).at_each, micro_batch=micro, grad_accum=accumulate, rank=rank, workers=workers, start=start, stop=stop
    )


def rows_of_step(rows: int, step: int, *, micro: int, accumulate: int, workers: int) -> list[int]:
    ranks = [batches(rows=rows, micro=micro, accumulate=accumulate, rank=rank, workers=workers) for rank in range(workers)]
    return [row for rank in ranks for turn in range(accumulate) for row in rank.micro(step, turn)]


@settings(deadline=None)
@given(rows=st.integers(1, 100), step=st.integers(0, 20), layout=st.sampled_from([(8, 1, 1), (2, 4, 1), (1, 4, 2), (2, 1, 4), (4, 1, 2)]))
def test_a_step_reads_the_same_rows_in_the_same_order_for_every_layout(rows: int, step: int, layout: tuple[int, int, int]) -> None:
    micro, accumulate, workers = layout

    assert rows_of_step(rows, step, micro=micro, accumulate=accumulate, workers=workers) == rows_of_step(
        rows, step, micro=8, accumulate=1, workers=1
    )


@settings(deadline=None)
@given(rows=st.integers(1, 60), start=st.integers(0, 9))
def test_starting_at_a_step_reads_what_an_uninterrupted_run_reads_from_there(rows: int, start: int) -> None:
    whole = list(batches(rows=rows, micro=2, accumulate=2, rank=1, workers=2, stop=10))

    resumed = list(batches(rows=rows, micro=2, accumulate=2, rank=1, workers=2, start=start, stop=10))

    assert resumed == whole[start * 2 :]


def test_steps_whose_order_is_computed_together_are_each_by_itself() -> None:
    rank = batches(rows=1000, micro=3, accumulate=2, rank=1, workers=2, start=5, stop=150)

    assert list(rank) == [rank.micro(step, micro) for step in range(5, 150) for micro in range(2)]


def test_an_epoch_reads_every_row_once() -> None:
    seen = [row for step in range(5) for row in rows_of_step(20, step, micro=2, accumulate=1, workers=2)]

    assert sorted(seen) == list(range(20))


def test_the_length_counts_the_whole_run_so_that_transformers_numbers_steps_right() -> None:
    assert len(batches(rows=10, micro=1, accumulate=4, rank=0, workers=1, start=3, stop=5)) == 20


def test_steps_cover_every_row_at_least_epochs_times() -> None:
    assert steps_of_epochs(1, rows=33, global_batch=8) == 5
    assert steps_of_epochs(0.5, rows=32, global_batch=8) == 2
    assert steps_of_epochs(3, rows=32, global_batch=8) == 12
    assert steps_of_epochs(1, rows=3, global_batch=8) == 1


@settings(deadline=None)
@given(rows=st.integers(1, 50), micro=st.integers(1, 7), workers=st.integers(1, 5))
def test_evaluation_reads_every_row_once_in_equally_many_batches_per_rank(rows: int, micro: int, workers: int) -> None:
    per_rank = [evaluation_batches(rows, micro, rank, workers) for rank in range(workers)]

    assert len({len(batches) for batches in per_rank}) == 1
    assert sorted(row for batches in per_rank for batch in batches for row in batch) == list(range(rows))
