"""Whatever dies whenever, every part is committed once, and no engine sits idle while parts wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuneyard.scoring.partition import Partition, parts_at_once


def test_each_rank_starts_in_a_block_of_its_own() -> None:
    partition = Partition(range(10), 2)

    assert [partition.take(0), partition.take(1), partition.take(0), partition.take(1)] == [0, 5, 1, 6]


def test_a_rank_without_parts_takes_the_last_one_of_the_largest_share() -> None:
    partition = Partition(range(6), 2)
    for _ in range(3):
        partition.done(partition.take(0))  # type: ignore[arg-type]  # three parts are its own

    assert partition.take(0) == 5
    assert partition.take(1) == 3


def test_parts_of_a_dead_engine_wait_again_in_order() -> None:
    partition = Partition(range(4), 1)
    for _ in range(3):
        partition.take(0)
    partition.done(1)

    assert partition.give_back(0) == [0, 2]
    assert [partition.take(0) for _ in range(4)] == [0, 2, 3, None]


@given(
    parts=st.integers(0, 40),
    ranks=st.integers(1, 5),
    fates=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["take", "commit", "die"])), max_size=300),
)
def test_every_part_is_committed_exactly_once_under_any_order_of_deaths(parts: int, ranks: int, fates: list[tuple[int, str]]) -> None:
    partition = Partition(range(parts), ranks)
    committed: list[int] = []

    def step(rank: int, fate: str) -> None:
        held = partition.held_by(rank)
        if fate == "take":
            part = partition.take(rank)
            assert part is not None or not partition.outstanding - sum(len(partition.held_by(r)) for r in range(ranks))
        elif fate == "commit" and held:
            partition.done(held[0])
            committed.append(held[0])
        elif fate == "die":
            assert partition.give_back(rank) == held

    for rank, fate in fates:
        step(rank % ranks, fate)
    while not partition.finished:  # whoever is left ends the work
        step(0, "take")
        for rank in range(ranks):
            step(rank, "commit")

    assert sorted(committed) == list(range(parts))


@given(batch=st.integers(1, 512), rows_per_part=st.integers(1, 2048), requests_per_row=st.integers(1, 2))
def test_while_one_part_ends_the_others_fill_the_batch(batch: int, rows_per_part: int, requests_per_row: int) -> None:
    parts = parts_at_once(batch=batch, rows_per_part=rows_per_part, requests_per_row=requests_per_row)

    assert parts >= 2
    assert (parts - 1) * rows_per_part * requests_per_row >= batch
