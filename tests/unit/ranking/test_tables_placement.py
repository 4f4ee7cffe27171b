"""Placement of tables on ranks: every cell once, within memory, and balanced as its rule promises."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.ranking import Costs, Placement, RankerConfig, SparseFeature, TableShape, placed, shapes_of

HOWS = ("auto", "table", "row", "column")
BALANCES = ("lpt", "round-robin")
SHAPES = st.lists(
    st.tuples(st.integers(1, 5_000), st.integers(1, 100), st.floats(0, 30), st.sampled_from([2, 4])), min_size=1, max_size=8
).map(lambda drawn: [TableShape(f"t{at}", rows, width, ids, min(ids, 1.0), size) for at, (rows, width, ids, size) in enumerate(drawn)])


def table(name: str, rows: int = 1_000, width: int = 16, ids: float = 1.0) -> TableShape:
    return TableShape(name, rows, width, ids, min(ids, 1.0))


def cells_of(placement: Placement, shape: TableShape) -> list[tuple[int, int]]:
    """Blocks of rows and columns between all cuts, each as often as a shard has it."""
    own = [shard for shard in placement.shards if shard.table == shape.name]
    rows = sorted({edge for shard in own for edge in shard.rows})
    columns = sorted({edge for shard in own for edge in shard.columns})
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, shape.rows, 0, shape.width)
    return [
        (row, column)
        for shard in own
        for row in rows[:-1]
        for column in columns[:-1]
        if shard.rows[0] <= row < shard.rows[1] and shard.columns[0] <= column < shard.columns[1]
    ]


@given(SHAPES, st.integers(1, 6), st.sampled_from(HOWS), st.sampled_from(BALANCES))
def test_every_cell_is_in_one_shard(shapes: list[TableShape], ranks: int, how: Any, balance: Any) -> None:
    placement = placed(shapes, ranks, how=how, balance=balance)

    for shape in shapes:
        cells = cells_of(placement, shape)
        edges = {shard.columns[0] for shard in placement.shards if shard.table == shape.name}
        assert len(cells) == len(set(cells)) == len({row for row, _ in cells}) * len({column for _, column in cells})
        assert all(edge % 16 == 0 for edge in edges)
    assert {shard.rank for shard in placement.shards} <= set(range(ranks))
    assert all(shard.height > 0 and shard.width > 0 for shard in placement.shards)
    assert placement == placed(shapes, ranks, how=how, balance=balance)


@given(SHAPES, st.integers(1, 6), st.sampled_from(HOWS))
def test_the_largest_load_is_within_grahams_bound(shapes: list[TableShape], ranks: int, how: Any) -> None:
    placement = placed(shapes, ranks, how=how)

    loads = placement.loads()
    largest = max(shard.cost for shard in placement.shards)
    assert max(loads) <= (sum(loads) / ranks + (1 - 1 / ranks) * largest) * (1 + 1e-9)


@given(SHAPES.filter(lambda shapes: len(shapes) <= 6), st.integers(2, 3))
def test_longest_first_is_at_most_a_third_above_the_best(shapes: list[TableShape], ranks: int) -> None:
    placement = placed(shapes, ranks, how="table")

    costs = [shard.cost for shard in placement.shards]
    best = min(
        max(sum(cost for cost, of in zip(costs, owners, strict=True) if of == rank) for rank in range(ranks))
        for owners in itertools.product(range(ranks), repeat=len(costs))
    )
    assert max(placement.loads()) <= (4 / 3 - 1 / (3 * ranks)) * best * (1 + 1e-9)


@given(SHAPES, st.integers(1, 5), st.sampled_from(HOWS), st.sampled_from(BALANCES), st.integers(1, 500_000))
def test_no_rank_has_more_than_its_memory_or_what_would_do_is_said(
    shapes: list[TableShape], ranks: int, how: Any, balance: Any, limit: int
) -> None:
    try:
        placement = placed(shapes, ranks, memory_bytes=limit, how=how, balance=balance)
    except BadInput as error:
        remedy = str(error)
        enough = int(re.search(r"a limit of (\d+) bytes", remedy)[1])  # type: ignore[index]
        assert max(placed(shapes, ranks, memory_bytes=enough, how=how, balance=balance).memory()) <= enough
        if more := re.search(r"give (\d+) ranks", remedy):
            assert placed(shapes, int(more[1]), memory_bytes=limit, how=how, balance=balance)
        if "how='auto'" in remedy:
            assert placed(shapes, ranks, memory_bytes=limit, balance=balance)
    else:
        assert max(placement.memory()) <= limit
        assert sum(placement.memory()) == sum(shape.bytes_of(shape.rows, shape.width) for shape in shapes)


def test_tables_that_balance_are_not_cut() -> None:
    placement = placed([table(name) for name in "abcd"], 2)

    assert len(placement.shards) == 4
    assert sorted(shard.rank for shard in placement.shards) == [0, 0, 1, 1]


def test_a_table_that_costs_more_than_the_mean_is_cut() -> None:
    shapes = [table("large", ids=50.0), *(table(f"small{at}") for at in range(4))]

    cut = [shard for shard in placed(shapes, 4).shards if shard.table == "large"]

    assert len(cut) > 1
    assert max(placed(shapes, 4).loads()) < max(placed(shapes, 4, how="table").loads())


def test_a_table_larger_than_a_rank_is_cut() -> None:
    large = table("large", rows=1_000_000)

    placement = placed([large, table("small")], 3, memory_bytes=30_000_000)

    assert len([shard for shard in placement.shards if shard.table == "large"]) == 3
    with pytest.raises(BadInput, match="give how='auto', which cuts large tables or a limit of 68000000 bytes"):
        placed([large, table("small")], 3, memory_bytes=30_000_000, how="table")


def test_longest_first_balances_skewed_tables_better_than_turns() -> None:
    shapes = [table(f"t{at}", ids=ids) for at, ids in enumerate([30.0, 1.0, 20.0, 1.0, 10.0, 1.0])]

    longest, turns = (max(placed(shapes, 2, how="table", balance=balance).loads()) for balance in ("lpt", "round-robin"))

    assert longest < turns


def test_costs_are_asked_for_ids_bytes_and_memory() -> None:
    free = Costs(0.0, 0.0, 0.0, 0.0)
    shape = table("t", rows=100, width=32, ids=10.0)

    assert Costs(1.0, 0.0, 0.0, 0.0).of(shape, (0, 50), 32, 4) == 5.0
    assert Costs(0.0, 1.0, 0.0, 0.0).of(shape, (0, 100), 16, 4) == 160.0
    assert Costs(0.0, 0.0, 1.0, 0.0).of(shape, (0, 100), 32, 4) == 0.75 * (10 * 4 + 2 * 32 * 4)
    assert Costs(0.0, 0.0, 0.0, 1.0).of(shape, (0, 100), 32, 4) == 100 * (32 * 4 + 2 * 4)
    assert free.of(shape, (0, 100), 32, 4) == 0.0


def test_shapes_are_those_of_the_config() -> None:
    config = RankerConfig((), (SparseFeature("user", 10), SparseFeature("tags", 5), SparseFeature("seen", 7, length=20)), (), width=24)

    user, tags, seen = shapes_of(config, ids_per_row={"tags": 3.5, "seen": 30.0}, rows="fp16")

    assert user == TableShape("user", 10, 24, 1.0, 1.0, 2)
    assert (tags.ids_per_row, tags.vectors_per_row) == (3.5, 1.0)
    assert (seen.ids_per_row, seen.vectors_per_row) == (20.0, 20.0)
    assert user.bytes_of(10, 24) == 10 * (24 * 2 + 2 * 4)


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(BadInput, match="two tables are called a"):
        placed([table("a"), table("a")], 1)
    with pytest.raises(BadInput, match="on 0 ranks"):
        placed([table("a")], 0)
    assert placed([], 2) == Placement((), 2, ())
