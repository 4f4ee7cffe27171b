"""Tables of one process: whole and sharded ones find the same, start from the same weights, and have names of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.ranks.ranker_tables import FEATURES, RATE, SEED, Case, batch_of_lists, loss_of, mixed_lists, no_ids, reference, steps_of

from tuneyard.api import BadInput
from tuneyard.ranking import EnsembleLayer, RankerConfig, ShardedTables, SparseFeature, WholeTables, placed, shapes_of
from tuneyard.ranking.tables import initial, table_names
from tuneyard.ranking.tables.initial import initialise


def sharded(case: Case, **fields: Any) -> ShardedTables:
    return ShardedTables(case.config(), case.placement(1), seed=SEED, rows=case.rows, **fields)


@pytest.mark.parametrize("how", ["table", "row", "column"])
def test_one_rank_learns_what_whole_tables_do(how: str) -> None:
    case = Case(how=how, width=40)

    outcome = steps_of(case, 0, 1)

    found, tables, _ = reference(case)
    assert all(torch.allclose(one, other.float(), atol=1e-6) for one, other in zip(outcome.found, found, strict=True))
    assert all(torch.allclose(outcome.tables[name], table.float(), atol=1e-5) for name, table in tables.items())


def test_a_ranker_is_the_same_with_either_tables() -> None:
    config = RankerConfig((), FEATURES, (EnsembleLayer(("dlrm",), 2),), width=16)
    tables = ShardedTables(config, placed(shapes_of(config), 1), seed=SEED)
    rankers = []
    for each in (None, tables):
        torch.manual_seed(SEED)
        rankers.append(config.build(each))
    batch = batch_of_lists(mixed_lists(0), range(8))

    assert torch.allclose(rankers[0](batch), rankers[1](batch), atol=1e-6)
    assert {name for name, _ in rankers[0].named_parameters()} - {name for name, _ in rankers[1].named_parameters()} == {
        f"features.tables.{name}" for name in table_names([feature.name for feature in FEATURES]).values()
    }


def test_a_ranker_in_bf16_reads_tables_in_fp32() -> None:
    config = RankerConfig((), FEATURES, (EnsembleLayer(("dlrm",), 2),), width=16)
    ranker = config.build(ShardedTables(config, placed(shapes_of(config), 1), seed=SEED)).bfloat16()

    assert ranker(batch_of_lists(mixed_lists(0), range(8))).dtype == torch.bfloat16


def test_a_sequence_has_its_last_ids_the_last_one_first() -> None:
    config = RankerConfig((), (SparseFeature("seen", 9, length=3),), (), width=4)
    tables = WholeTables(config, seed=1)
    batch = {"seen.ids": torch.tensor([1, 2, 3, 4, 5]), "seen.offsets": torch.tensor([0, 4, 5, 5])}

    for each in (tables, ShardedTables(config, placed(shapes_of(config), 1), seed=1)):
        (found,) = each(batch)

        weight = tables.get_parameter("seen").detach()
        assert torch.equal(found[0], weight[[4, 3, 2]])
        assert torch.equal(found[1], torch.cat([weight[[5]], torch.zeros(2, 4)]))
        assert torch.equal(found[2], torch.zeros(3, 4))


def test_first_weights_do_not_depend_on_how_a_table_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "BLOCK_ROWS", 7)
    named: dict[str, Any] = {"seed": 3, "table": "user", "shape": (30, 20)}
    whole = initialise(torch.empty(30, 20), **named)

    part = initialise(torch.empty(11, 4), **named, first_row=5, first_column=16)

    assert torch.equal(part, whole[5:16, 16:])
    assert not torch.equal(whole, initialise(torch.empty(30, 20), **{**named, "table": "item"}))
    assert not torch.equal(whole, initialise(torch.empty(30, 20), **{**named, "seed": 4}))
    assert not torch.equal(whole[:7], whole[7:14])
    assert float(initialise(torch.empty(300, 20), **{**named, "shape": (300, 20)}).std()) == pytest.approx(20**-0.5, rel=0.05)


def test_names_that_torch_has_no_parameters_of_get_others() -> None:
    names = table_names(["user", "a.b", "type", "feature_type", "_x", "training"])

    assert names["user"] == "user"
    assert len(set(names.values())) == 6
    config = RankerConfig((), tuple(SparseFeature(name, 3) for name in names), (), width=4)
    batch = {f"{name}.ids": torch.tensor([1]) for name in names} | {f"{name}.offsets": torch.tensor([0, 1]) for name in names}
    assert len(WholeTables(config, seed=0)(batch)) == 6


@pytest.mark.parametrize("how", ["table", "row", "column"])
def test_rows_in_fp16_learn_nearly_the_same_on_every_placement(how: str) -> None:
    case = Case(how=how, width=40, rows="fp16", steps=6)
    outcome, (_, tables, _) = steps_of(case, 0, 1), reference(Case(width=40, steps=6))

    assert all(table.dtype == torch.float16 for table in outcome.tables.values())
    for name, table in tables.items():
        assert torch.allclose(outcome.tables[name].double(), table, atol=0.02), name
    again = steps_of(case, 0, 1)
    assert all(torch.equal(again.tables[name], table) for name, table in outcome.tables.items())


def test_gradients_of_micro_batches_wait_for_one_update() -> None:
    tables, batch = sharded(Case()), batch_of_lists(mixed_lists(0), range(24))
    before = tables.gathered("user")

    loss_of(tables(batch), range(24)).backward()
    assert torch.equal(tables.gathered("user"), before)
    loss_of(tables(batch), range(24)).backward()
    tables.apply_gradients(RATE)
    assert not torch.equal(tables.gathered("user"), before)


def test_without_a_gradient_nothing_is_kept() -> None:
    tables, batch = sharded(Case()), batch_of_lists(mixed_lists(0), range(24))
    before = tables.gathered("user")

    with torch.no_grad():
        found = tables(batch)
    tables.apply_gradients(RATE)

    assert not any(each.requires_grad for each in found)
    assert torch.equal(tables.gathered("user"), before)


def test_a_batch_without_rows_and_one_without_ids_are_read() -> None:
    tables = sharded(Case(how="row"))

    assert [len(each) for each in tables(batch_of_lists(mixed_lists(0), range(0)))] == [0] * 5
    assert all(float(each.detach().abs().sum()) == 0 for each in tables(batch_of_lists(no_ids(0), range(4))))


def test_a_batch_that_was_not_prefetched_is_found_all_the_same() -> None:
    tables = sharded(Case())
    one, other = (batch_of_lists(mixed_lists(step), range(24)) for step in (0, 1))
    plain = tables(one), tables(other)

    tables.prefetch(other)
    again = tables(one), tables(other)

    for found, expected in zip(again, plain, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_batches_that_are_prefetched_and_never_used_are_refused() -> None:
    tables, batch = sharded(Case()), batch_of_lists(mixed_lists(0), range(24))
    for _ in range(16):
        tables.prefetch(batch)

    with pytest.raises(BadInput, match="16 batches were prefetched and not used"):
        tables.prefetch(batch)


def test_pieces_are_views_of_what_is_trained() -> None:
    tables = sharded(Case(how="column", width=40))
    pieces = {(piece.name, piece.box): piece for piece in tables.pieces()}

    user = pieces["features.tables.user", ((0, 40), (0, 40))]
    states = pieces["features.tables.user.squares", ((0, 40), (0, 3))]
    assert (user.shape, states.shape) == ((40, 40), (40, 3))
    assert all(piece.tensor.is_contiguous() for piece in pieces.values())
    user.tensor.zero_()
    assert float(tables.gathered("user").abs().sum()) == 0  # type: ignore[union-attr]


def test_a_ranker_without_sparse_features_has_no_tables() -> None:
    config = RankerConfig(("age",), (), (), width=4)
    tables = ShardedTables(config, placed(shapes_of(config), 1), seed=0)
    batch = {"dense": torch.ones(3, 1)}

    tables.prefetch(batch)
    assert config.build(tables)(batch).shape == (3, 1)
    tables.apply_gradients(RATE)
    assert tables.pieces() == []


def test_placements_of_other_tables_or_ranks_are_refused() -> None:
    config, other = Case().config(), Case(width=8).config()

    with pytest.raises(BadInput, match="not one of this ranker's tables"):
        ShardedTables(config, placed(shapes_of(other), 1), seed=0)
    with pytest.raises(BadInput, match="are placed on 2 ranks, and 1 take part"):
        ShardedTables(config, placed(shapes_of(config), 2), seed=0)
