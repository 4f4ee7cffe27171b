"""Sharded tables on real ranks: the embeddings and updates of whole tables, wherever the shards are."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tests.ranks.ranker_tables import FEATURES, ROWS, Case, Outcome, joined, reference, trained

from tuneyard.ranking.tables import table_names

HOWS = ("table", "row", "column", "auto")
CASES = [
    *(Case(how=how, width=width) for how in HOWS for width in (16, 40)),
    *(Case(how=how, width=40, lists=lists) for how in ("table", "row") for lists in ("single_ids", "no_ids", "ids_on_first_rows")),
    Case(how="row", lists="long_lists", steps=2),
    Case(how="table", lists="long_lists", steps=2),
    *(Case(how=how, width=40, micro_batches=2) for how in HOWS),
    *(Case(how=how, width=40, micro_batches=2, prefetch=True) for how in HOWS),
    Case(how="column", width=40, only_first=True),
]
HALF = [Case(how=how, width=40, rows="fp16") for how in ("row", "column")]
ROUNDED = [Case(how=how, width=40, wire=wire) for how in ("row", "column") for wire in ("fp16", "int8")]
TOLERANCE = {"fp16": 1e-3, "int8": 2e-2}
"""Of the largest element of a table after three steps; of embeddings the half: 2^-11 and 1/254 for each part of a bag."""
RANKS = (1, 2, 3, pytest.param(4, marks=pytest.mark.long))
"""Three ranks hold in `make test` what four add: rows and tables that do not divide evenly are theirs."""


def near(one: torch.Tensor, other: torch.Tensor, case: Case) -> bool:
    """Equal but for the rounding of fp32, which adds up over lists of 100,000 ids, in whole tables too."""
    return bool((one - other).abs().max() <= (2e-3 if case.lists == "long_lists" else 1e-5) * other.abs().max())


@cache
def outcomes(ranks: int) -> dict[Case, list[Outcome]]:
    """By case, what each rank came to."""
    cases = CASES + HALF + ROUNDED
    return dict(zip(cases, trained(cases, ranks), strict=True))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ranks_find_and_learn_what_whole_tables_do(case: Case, ranks: int) -> None:
    by_rank = outcomes(ranks)[case]
    found, tables, squares = reference(case)
    names = table_names([feature.name for feature in FEATURES])

    if case.micro_batches == 1:
        together = [torch.cat([each.found[at] for each in by_rank]) for at in range(len(FEATURES))]
        assert all(near(one, other, case) for one, other in zip(together, found, strict=True))
        assert [each.shape for each in together] == [each.shape for each in found]
    for name, table in tables.items():
        assert near(by_rank[0].tables[name], table, case), name
        assert torch.equal(joined(by_rank, f"features.tables.{names[name]}"), by_rank[0].tables[name])
        assert near(joined(by_rank, f"features.tables.{names[name]}.squares"), squares[name], case), name
    assert all(not outcome.tables for outcome in by_rank[1:])
    assert sum(len(each.found[0]) for each in by_rank) == ROWS // case.micro_batches


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", HOWS)
def test_prefetched_ids_change_no_bit(how: str, ranks: int) -> None:
    plain, ahead = (outcomes(ranks)[Case(how=how, width=40, micro_batches=2, prefetch=prefetch)] for prefetch in (False, True))

    for one, other in zip(plain, ahead, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.found, other.found, strict=True))
        assert all(torch.equal(one.tables[name], other.tables[name]) for name in one.tables)


def test_the_same_ranks_come_to_the_same_bits_again() -> None:
    case = Case(how="row", width=40)

    again = trained([case], 3)[0]

    assert all(torch.equal(again[0].tables[name], table) for name, table in outcomes(3)[case][0].tables.items())


def test_a_rank_without_a_shard_takes_part() -> None:
    first, *others = outcomes(3)[Case(how="column", width=40, only_first=True)]

    assert first.pieces
    assert [each.pieces for each in others] == [[], []]


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("case", HALF, ids=str)
def test_rows_in_fp16_are_rounded_alike_on_every_placement(case: Case, ranks: int) -> None:
    """But for sums whose last bits differ with the order of addition, and so fall on the other side of a random number."""
    alone = outcomes(1)[case][0].tables

    for name, table in outcomes(ranks)[case][0].tables.items():
        assert (table == alone[name]).float().mean() > 0.99, name
        assert torch.allclose(table, alone[name], atol=2e-3), name


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", ROUNDED, ids=str)
def test_embeddings_in_fewer_bits_are_those_of_whole_tables_within_the_tolerance(case: Case, ranks: int) -> None:
    """One rank sends nothing, and rounds nothing."""
    by_rank = outcomes(ranks)[case]
    found, tables, _ = reference(case)
    tolerance = TOLERANCE[case.wire] if ranks > 1 else 1e-5
    together = [torch.cat([each.found[at] for each in by_rank]) for at in range(len(FEATURES))]
    apart = [float((one - other).abs().max() / other.abs().max()) for one, other in zip(together, found, strict=True)]
    learned = {name: float((by_rank[0].tables[name] - table).abs().max() / table.abs().max()) for name, table in tables.items()}
    assert max(apart) <= tolerance / 2
    assert max(learned.values()) <= tolerance
    assert ranks == 1 or max(apart) > 1e-5, "it was rounded"
