"""What the comparison of rankers rests on: peers after their papers, equal numbers of parameters, and rates chosen off the test part."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks import ranker_training
from benchmarks.ranker_peers import DLRM, CrossLayer, DCNv2
from benchmarks.ranker_results import Result, best_module, rows_of, spread
from benchmarks.ranker_training import PARAMETERS, PEERS, WITHIN, Entry, dense_parameters, equalised

from tuneyard.ranking import batch_of_rows
from tuneyard.ranking.click_log import config_of

CONFIG = config_of(layers=(), width=16)
ROWS = [
    {"number0": 1.0, "number1": None, "number2": -3.0, "number3": 1e9, "clicked": 1}
    | {"user": 3, "item": 1, "category": 2, "hour": 4, "device": 5, "tags": [1, 2], "history": [7, 8]},
    {"number0": 0.0, "number1": 2.0, "number2": 0.1, "number3": 4.0, "clicked": 0}
    | {"user": 9, "item": None, "category": 0, "hour": 0, "device": 0, "tags": [], "history": []},
]
ENTRIES = [
    Entry("linear", 1),
    Entry("attention", 2),
    Entry("dcn", 4),
    Entry("dlrm+dcn+linear", 3),
    Entry("dlrm+linear", 8),
    Entry("dlrm+dcn+attention+convolution+linear", 1),
    *(Entry(peer, 1) for peer in PEERS),
]


@pytest.mark.parametrize("family", PEERS)
def test_every_weight_of_a_peer_takes_part(family: str) -> None:
    torch.manual_seed(0)
    peer = PEERS[family](CONFIG, 24)

    logits = peer(batch_of_rows(ROWS, CONFIG))
    logits.square().sum().backward()

    assert logits.shape == (2, 1)
    assert torch.isfinite(logits).all()
    assert [name for name, weight in peer.named_parameters() if weight.grad is None or not torch.isfinite(weight.grad).all()] == []


def test_a_cross_layer_is_that_of_the_paper() -> None:
    layer, first, x = CrossLayer(3), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0, 5.0, 6.0]])
    weight, bias = layer.map.weight.detach(), layer.map.bias.detach()

    expected = torch.stack([first[0, at] * (weight[at] @ x[0] + bias[at]) + x[0, at] for at in range(3)])

    assert torch.allclose(layer(first, x)[0], expected)


def test_the_top_of_dlrm_reads_every_pair_once_and_no_square() -> None:
    one, other = DLRM(CONFIG, 24).pairs.tolist()

    assert sorted(zip(one, other, strict=True)) == [(at, before) for at in range(len(CONFIG.sparse) + 1) for before in range(at)]


def test_a_stacked_dcn_has_cross_layers_before_its_deep_network_and_a_parallel_one_beside_it() -> None:
    stacked, parallel = (DCNv2(CONFIG, 24, crosses=2, stacked=stacked) for stacked in (True, False))

    assert stacked.head.in_features == 24
    assert parallel.head.in_features == 24 + (len(CONFIG.dense) + len(CONFIG.sparse)) * CONFIG.width


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_models_have_equal_numbers_of_dense_parameters(entry: Entry) -> None:
    model = equalised(entry, CONFIG)()

    assert abs(dense_parameters(model) - PARAMETERS) <= WITHIN * PARAMETERS
    assert len(getattr(model, "layers", [None])) == entry.layers


def test_a_model_that_cannot_be_that_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranker_training, "PARAMETERS", 1_000)
    with pytest.raises(ValueError, match="4 layers of dcn"):
        equalised(Entry("dcn", 4), CONFIG)


def result(**changes: Any) -> Result:
    return replace(Result("clicks", "dcn", 1, 0, 0.001, 80_000, 100, 0.8, 0.8, 0.7, 1.0, 1.0), **changes)


def test_a_rate_is_chosen_by_the_part_to_choose_by_and_not_by_the_test_part() -> None:
    tried = [result(), result(rate=0.01, valid=0.7, normalised_entropy=0.9), result(rate=0.01, seed=1, valid=0.9, normalised_entropy=0.92)]

    [row] = rows_of(tried)

    assert [each.rate for each in row.results] == [0.01, 0.01]
    assert row.mean == pytest.approx(0.91)
    assert spread([row]) == pytest.approx(0.02 / math.sqrt(2))


def test_the_best_module_alone_is_neither_a_stack_nor_an_ensemble_nor_a_peer() -> None:
    better = [result(layers=2), result(family="dcn+linear"), result(family="DLRM")]
    rows = rows_of(
        [replace(each, normalised_entropy=0.5) for each in better] + [result(), result(family="linear", normalised_entropy=0.75)]
    )

    assert best_module(rows).family == "linear"
