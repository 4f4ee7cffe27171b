"""Rankers: what they compute from a batch, which columns they refuse, and that they survive being saved and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from tuneyard.api import BadInput
from tuneyard.ranking import EnsembleLayer, RankerConfig, SparseFeature, batch_of, batch_of_rows, export, load, save
from tuneyard.ranking.config import INTERACTIONS
from tuneyard.ranking.interactions import AdvancedDLRM
from tuneyard.ranking.ranker import Ensemble
from tuneyard.ranking.tables import hashed

ROWS = [
    {"age": 30.0, "price": None, "user": 5, "tags": [1, 2], "seen": [7, 8, 9], "clicked": 1},
    {"age": float("nan"), "price": 2.5, "user": None, "tags": [], "seen": [], "clicked": 0},
    {"age": -4.0, "price": 1e30, "user": 10**12, "tags": None, "seen": [3], "clicked": 0},
]


def config(*layers: EnsembleLayer, **fields: Any) -> RankerConfig:
    features = (SparseFeature("user", 11), SparseFeature("tags", 7, pooling="sum"), SparseFeature("seen", 13, length=2))
    return RankerConfig(**{"dense": ("age", "price"), "sparse": features, "layers": layers, "width": 8, "tasks": ("clicked",), **fields})


def built(*layers: EnsembleLayer, **fields: Any) -> Any:
    torch.manual_seed(0)
    return config(*layers, **fields).build()


DEEP = (EnsembleLayer(INTERACTIONS, 2), EnsembleLayer(("attention", "linear"), 5), EnsembleLayer(("dcn",), 3))
SUMS = (EnsembleLayer(INTERACTIONS, 4, "sum"), EnsembleLayer(("attention", "linear"), 4, "weighted_sum"), EnsembleLayer(("dcn",), 3))


@pytest.mark.parametrize("layers", [(), *[(EnsembleLayer((name,), 4),) for name in INTERACTIONS], DEEP, SUMS], ids=str)
def test_every_weight_of_every_ensemble_takes_part(layers: tuple[EnsembleLayer, ...]) -> None:
    ranker, batch = built(*layers), batch_of_rows(ROWS, config(*layers))

    logits = ranker(batch)
    logits.square().sum().backward()

    assert logits.shape == (3, 1)
    assert torch.isfinite(logits).all()
    assert [name for name, weight in ranker.named_parameters() if weight.grad is None or not torch.isfinite(weight.grad).all()] == []


def test_what_is_no_number_is_missing_and_not_zero() -> None:
    ranker = built(*DEEP)
    for name, weight in ranker.named_parameters():  # as after training: at first, a missing number is a zero
        if "missing" in name:
            torch.nn.init.normal_(weight)
    given = {"missing": None, "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "zero": 0.0}
    rows = [{**ROWS[0], "age": age} for age in given.values()]

    logits = dict(zip(given, ranker(batch_of_rows(rows, config(*DEEP)))[:, 0].tolist(), strict=True))

    zero = logits.pop("zero")
    assert list(logits.values()) == pytest.approx([logits["missing"]] * 4, abs=1e-5)
    assert abs(zero - logits["missing"]) > 1e-3


@pytest.mark.parametrize("ensemble", ["sum", "weighted_sum"])
def test_a_sum_adds_the_embeddings_of_its_modules(ensemble: Any) -> None:
    torch.manual_seed(0)
    layer = Ensemble(EnsembleLayer(("linear", "dcn", "linear"), 3, ensemble), inputs=5, width=8)
    x = torch.randn(2, 5, 8)
    factors = torch.tensor([1.0, 1.0, 1.0])
    if layer.weights is not None:
        assert torch.equal(layer.weights, factors), "it begins as a sum"
        factors = torch.tensor([0.5, -1.0, 2.0])
        layer.weights.data.copy_(factors)
    together = sum(factor * part(x) for factor, part in zip(factors, layer.parts, strict=True))
    assert torch.allclose(layer(x), layer.norm(together + layer.shortcut(x)), atol=1e-6)
    assert layer(x).shape == (2, 3, 8)


def test_dlrm_sees_how_large_all_products_are() -> None:
    torch.manual_seed(0)
    module, embeddings = AdvancedDLRM(inputs=5, outputs=3, width=8), torch.randn(2, 5, 8)
    torch.nn.init.zeros_(module.compress.map.bias)

    once, twice = module(embeddings), module(2 * embeddings)

    assert float((once - twice).abs().max()) > 0.05


def test_rows_do_not_depend_on_each_other() -> None:
    ranker = built(*DEEP).eval()

    together = ranker(batch_of_rows(ROWS, ranker.config))
    alone = torch.cat([ranker(batch_of_rows([row | {"age": row["age"]}], ranker.config)) for row in ROWS])

    assert torch.allclose(together, alone, atol=1e-6)


def test_of_a_sequence_the_last_ids_count_in_their_order() -> None:
    ranker = built().eval()

    def logit(seen: list[int]) -> float:
        return float(ranker(batch_of_rows([ROWS[0] | {"seen": seen}], ranker.config, labels=False)))

    assert logit([1, 2, 8, 9]) == logit([5, 8, 9]) != logit([9, 8])


def test_a_bag_has_no_order() -> None:
    ranker = built().eval()
    one, other = (ranker(batch_of_rows([ROWS[0] | {"tags": tags}], ranker.config)) for tags in ([1, 2], [2, 1]))

    assert torch.allclose(one, other, atol=1e-6)


def test_ids_inside_of_a_table_stay_and_others_are_spread_over_it() -> None:
    ids = torch.cat([torch.arange(10), torch.arange(10, 10_010), torch.tensor([-1, 2**62, -(2**63)])])

    found = hashed(ids, 10)

    assert found[:10].tolist() == list(range(10))
    assert (found >= 0).all()
    assert (found < 10).all()
    assert torch.bincount(found[10:10_010]).min() > 850
    assert torch.equal(found, hashed(ids.clone(), 10))


def test_columns_and_rows_make_the_same_batch() -> None:
    table = pa.table({name: pa.array([row[name] for row in ROWS]) for name in ROWS[0]})
    several = pa.concat_tables([table.slice(0, 1), table.slice(1)])

    for columns in (table, several, table.to_batches()[0]):
        found = batch_of(columns, config())
        assert {name: value.tolist() for name, value in found.items() if name != "dense"} == {
            name: value.tolist() for name, value in batch_of_rows(ROWS, config()).items() if name != "dense"
        }
    assert found["tags.offsets"].tolist() == [0, 2, 2, 2]
    assert found["user.ids"].tolist() == [5, 10**12]


def test_a_missing_number_is_told_from_zero() -> None:
    ranker = built().eval()
    missing, zero = (float(ranker(batch_of_rows([ROWS[0] | {"age": age}], ranker.config))) for age in (None, 0.0))

    assert missing != zero


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"clicked": 2}, "label clicked is 2 in row 0, and not 0 or 1"),
        ({"clicked": None}, "label clicked is None in row 0, and not 0 or 1"),
        ({"age": "old"}, "column age has values of several types"),
        ({"tags": [1, None]}, "a list of tags holds a null"),
        ({"user": 1.5}, "column user"),
    ],
)
def test_values_that_no_ranker_can_read_are_refused(changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(BadInput, match=cause):
        batch_of_rows([ROWS[0] | changes, ROWS[1] | ({"age": 1.0} if "age" in changes else {})], config())


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ({"age": pa.array(["old"])}, "column age has values of type string, and not numbers"),
        ({"user": pa.array([{"a": 1}])}, "sparse column user holds struct"),
        ({"user": pa.array([1.5])}, "sparse column user holds double, and neither ids nor texts"),
    ],
)
def test_columns_of_another_type_are_refused(column: dict[str, pa.Array], cause: str) -> None:
    table = {name: pa.array([ROWS[0][name]]) for name in ROWS[0]} | column
    with pytest.raises(BadInput, match=cause):
        batch_of(pa.table(table), config())


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="the data have no column price"):
        batch_of_rows([{name: value for name, value in ROWS[0].items() if name != "price"}], config())


def test_a_column_of_nulls_and_a_list_of_many_ids_are_read() -> None:
    ranker = built().eval()
    long = ROWS[0] | {"tags": list(range(100_000)), "age": None, "user": None, "seen": None}

    assert torch.isfinite(ranker(batch_of_rows([long, long], ranker.config))).all()


@pytest.mark.parametrize(("layers", "version"), [(DEEP, 2), (SUMS, 4)])
def test_a_saved_ranker_is_the_same_ranker(layers: tuple[EnsembleLayer, ...], version: int, tmp_path: Path) -> None:
    ranker = built(*layers)
    save(ranker, tmp_path)
    values = json.loads((tmp_path / "ranker.json").read_text())
    assert values["version"] == version  # versions without sums refuse 4
    assert [each.get("ensemble", "concatenation") for each in values["layers"]] == [layer.ensemble for layer in layers]

    found = load(tmp_path)

    batch = batch_of_rows(ROWS, ranker.config)
    assert found.config == ranker.config
    assert torch.equal(found(batch), ranker.eval()(batch))


def test_a_folder_without_a_whole_ranker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no ranker"):
        load(tmp_path)
    save(built(*DEEP), tmp_path)
    values = json.loads((tmp_path / "ranker.json").read_text())
    (tmp_path / "ranker.json").write_text(json.dumps(values | {"width": 16}))
    with pytest.raises(BadInput, match="are those of another ranker"):
        load(tmp_path)
    (tmp_path / "ranker.json").write_text(json.dumps(values | {"version": 1}))
    with pytest.raises(BadInput, match="is of another version"):
        load(tmp_path)
    (tmp_path / "ranker.json").write_text(json.dumps(values))
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(BadInput, match="holds no ranker"):
        load(tmp_path)


@pytest.mark.parametrize("layers", [DEEP, SUMS[1:]])
def test_an_exported_ranker_takes_other_batches(layers: tuple[EnsembleLayer, ...]) -> None:
    ranker = built(*layers).eval()
    program = export(ranker, batch_of_rows(ROWS, ranker.config))

    batch = batch_of_rows(ROWS[:2] * 4, ranker.config, labels=False)

    assert torch.allclose(program.module()(batch), ranker(batch), atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"dense": (), "sparse": ()}, "the ranker has no features"),
        ({"dense": ("age", "age")}, "age is named twice"),
        ({"tasks": ("age",)}, "age is named twice"),
        ({"tasks": ()}, "the ranker has no label"),
        ({"width": 0}, "a width of the ranker is no whole number, or below 1"),
    ],
)
def test_a_config_that_makes_no_ranker_is_refused(fields: dict[str, Any], cause: str) -> None:
    with pytest.raises(BadInput, match=cause):
        config(**fields)


def test_a_layer_of_unknown_modules_names_those_that_there_are() -> None:
    with pytest.raises(BadInput, match="no interaction module is called dclrm"):
        EnsembleLayer(("dclrm",))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no ensemble is called mean"):
        EnsembleLayer(("dlrm",), 4, "mean")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="the table of user has 0 rows"):
        SparseFeature("user", 0)


def test_files_that_are_not_as_they_were_committed_are_refused(tmp_path: Path) -> None:
    from tuneyard.storage import open_store

    save(config().build(), tmp_path / "made")
    open_store(str(tmp_path)).commit_folder(tmp_path / "made", "model")
    load(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    with pytest.raises(BadInput, match=r"model.safetensors is damaged"):
        load(tmp_path / "model")


@pytest.mark.parametrize("content", ["[]", "null", "3", '{"version": 2}'])
def test_a_config_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    save(config().build(), tmp_path)
    (tmp_path / "ranker.json").write_text(content)
    with pytest.raises(BadInput):
        load(tmp_path)


@pytest.mark.parametrize("name", ["begin", "forward", "a.b", "type", "_parameters"])
def test_a_feature_may_have_any_name(name: str, tmp_path: Path) -> None:
    made = RankerConfig(dense=(), sparse=(SparseFeature(name, 5),), layers=(EnsembleLayer(("linear",)),)).build()
    save(made, tmp_path)
    batch = {f"{name}.ids": torch.tensor([1, 2]), f"{name}.offsets": torch.tensor([0, 1, 2])}
    assert torch.equal(load(tmp_path)(batch), made(batch))


def test_one_row_is_no_batch_to_export_on() -> None:
    ranker = config().build()
    with pytest.raises(BadInput, match="fewer than two rows"):
        export(ranker, batch_of_rows(ROWS[:1], ranker.config))
