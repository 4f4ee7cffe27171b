"""Transforms of a ranker: the same numbers in training, loading and scoring, and what a table must be for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.builders.rankers import rank_task

from tuneyard.api import BadInput, RankTask
from tuneyard.data.holdout import held_out_items
from tuneyard.data.tables import Pipeline
from tuneyard.ranking import (
    EnsembleLayer,
    FlatRows,
    RankerConfig,
    RankerProgram,
    SparseFeature,
    batch_of,
    batch_of_rows,
    check_table,
    config_of_task,
    export,
    load,
    measured,
    read_config,
    save,
    statistics,
    stored_rows,
    training_steps,
)

STEPS: list[dict[str, Any]] = [
    {"op": "sigrid_hash", "inputs": ["user"], "output": "user_id", "table_size": 50},
    {"op": "first_x", "inputs": ["seen"], "output": "recent", "count": 2},
    {"op": "bucketize", "inputs": ["age"], "output": "age_group", "borders": [18, 65]},
    {"op": "cartesian", "inputs": ["recent", "age_group"], "output": "recent_by_age", "table_size": 40},
    {"op": "get_local_hour", "inputs": ["time"], "output": "hour", "time_zone": "Europe/Vienna"},
    {"op": "clamp", "inputs": ["scores[7]"], "output": "scores[7]", "low": 0, "high": 1},
    {"op": "clamp", "inputs": ["clicks"], "output": "clicked", "low": 0, "high": 1},
]
CONFIG = RankerConfig(
    dense=("age", "scores[7]"),
    sparse=(SparseFeature("user_id", 50), SparseFeature("recent_by_age", 40), SparseFeature("hour", 24)),
    layers=(EnsembleLayer(("linear",), outputs=2),),
    width=4,
    hidden=(8,),
    tasks=("clicked",),
    transforms=Pipeline.of(STEPS),
)
ROWS: list[dict[str, Any]] = [
    {"user": "ann", "seen": [1, 2, 3], "age": 70.0, "time": 0, "scores[7]": 5.0, "clicks": 3},
    {"user": None, "seen": None, "age": None, "time": None, "scores[7]": None, "clicks": 0},
    {"user": "bob", "seen": [4, None], "age": 10.0, "time": 3600, "scores[7]": -2.0, "clicks": 1},
]
TYPES = pa.schema(
    [
        ("user", pa.string()),
        ("seen", pa.list_(pa.int64())),
        ("age", pa.float64()),
        ("time", pa.int64()),
        ("scores", pa.map_(pa.int64(), pa.float64())),
        ("clicks", pa.int64()),
        ("country", pa.string()),
    ]
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))


def table_of(**changes: Any) -> pa.Table:
    """The rows as a table has them, with their entry inside of a map; None leaves a column out."""
    columns: dict[str, Any] = {
        name: pa.array([row[name] for row in ROWS], TYPES.field(name).type) for name in ROWS[0] if name in TYPES.names
    }
    columns["scores"] = pa.array([[] if row["scores[7]"] is None else [(7, row["scores[7]"])] for row in ROWS], TYPES.field("scores").type)
    columns["country"] = pa.array(["de", None, "fr"])
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


def stored(tmp_path: Path, config: RankerConfig = CONFIG, table: pa.Table | None = None, **fields: Any) -> FlatRows:
    pq.write_table(table_of() if table is None else table, tmp_path / "t.parquet")
    return stored_rows(str(tmp_path / "t.parquet"), config, **fields)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name].nan_to_num(-9), other[name].nan_to_num(-9)) for name in one)


def test_a_batch_holds_what_the_steps_make() -> None:
    batch = batch_of_rows(ROWS, CONFIG)
    assert batch["labels"].tolist() == [[1.0], [0.0], [1.0]]
    assert batch["dense"].nan_to_num(-9).tolist() == [[70.0, 1.0], [-9.0, -9.0], [10.0, 0.0]]
    assert batch["hour.ids"].tolist() == [1, 2]
    assert batch["user_id.offsets"].tolist() == [0, 1, 1, 2]
    assert batch["recent_by_age.offsets"].tolist() == [0, 2, 2, 3]


def test_rows_on_disk_are_the_batch_of_the_rows(tmp_path: Path) -> None:
    rows = stored(tmp_path, slices=("hour", "country"))
    assert equal(rows.batch([0, 1, 2]), batch_of_rows(ROWS, CONFIG))
    codes, values = rows.coded("hour", range(3))
    assert [values[code] for code in codes] == ["1", None, "2"]
    assert rows.texts == {"user_id": False, "recent_by_age": False, "hour": False}
    assert rows.text_inputs == {"user": True, "seen": False, "age": False, "time": False, "scores[7]": False, "clicks": False}


def test_other_parameters_are_other_rows_on_disk(tmp_path: Path) -> None:
    first = stored(tmp_path).batch([0, 2])["user_id.ids"].tolist()
    seeded = RankerConfig(**{**CONFIG.__dict__, "transforms": Pipeline.of([STEPS[0] | {"seed": 1}, *STEPS[1:]])})
    assert stored_rows(str(tmp_path / "t.parquet"), seeded).batch([0, 2])["user_id.ids"].tolist() != first
    told: list[int] = []
    stored_rows(str(tmp_path / "t.parquet"), CONFIG, on_rows=lambda done, _of: told.append(done))
    assert not told


def test_a_table_is_a_batch_however_it_is_chunked() -> None:
    plain = pa.Table.from_pylist(ROWS)
    whole, chunked = batch_of(plain, CONFIG), batch_of(pa.concat_tables([plain.slice(0, 1), plain.slice(1)]), CONFIG)
    assert equal(whole, chunked)
    assert batch_of(plain.slice(0, 0), CONFIG)["labels"].shape == (0, 1)
    assert batch_of(pa.concat_tables([plain.slice(0, 0)] * 2), CONFIG)["dense"].shape == (0, 2)


def test_features_alone_need_no_column_of_the_label() -> None:
    bare = [{name: value for name, value in row.items() if name != "clicks"} for row in ROWS]
    assert "labels" not in batch_of_rows(bare, CONFIG, labels=False)
    with pytest.raises(BadInput, match="the data have no column clicks"):
        batch_of_rows(bare, CONFIG)
    with pytest.raises(BadInput, match=r"the data have no column scores\[7\]"):
        batch_of(pa.table({"age": [1.0], "user_id": [3]}), CONFIG, labels=False)


def test_a_saved_ranker_makes_the_same_numbers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    ranker = CONFIG.with_texts({}, {"user": True}).build().eval()
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.config == ranker.config == read_config(tmp_path / "model")
    batch = batch_of_rows(ROWS, again.config)
    assert torch.equal(again(batch), ranker(batch_of_rows(ROWS, CONFIG)))
    assert torch.allclose(
        export(again, batch).module()({name: batch[name] for name in batch if name != "labels"}), ranker(batch), atol=1e-5
    )


def test_readers_that_know_no_transforms_refuse_a_ranker_with_them_and_read_one_without(tmp_path: Path) -> None:
    save(CONFIG.build(), tmp_path / "with")
    plain = RankerConfig(dense=("age",), sparse=(), layers=CONFIG.layers, width=4)
    save(plain.build(), tmp_path / "without")
    new, old = (json.loads((tmp_path / name / "ranker.json").read_text()) for name in ("with", "without"))
    assert (new["version"], old["version"]) == (3, 2)
    assert set(old) == {"version", "dense", "sparse", "layers", "width", "hidden", "tasks"}  # as before there were transforms
    assert load(tmp_path / "without").config == plain
    for values, said in (
        (new | {"version": 5}, "another version"),
        (new | {"version": 4}, "lost its transforms or ensembles"),
        (new | {"transforms": [{"op": "fourier"}]}, "no operation 'fourier'"),
        (new | {"transforms": "sigrid_hash"}, ""),
        (new | {"transforms": [{"op": "sampling", "key": "user", "rate": 0.5}]}, "a ranker predicts of every row"),
        (new | {"text_inputs": 3}, "no ranker's config"),
        ({name: value for name, value in new.items() if name != "transforms"}, "lost its transforms"),
        (new | {"version": 2}, "lost its transforms or ensembles, or got some"),
    ):
        (tmp_path / "with" / "ranker.json").write_text(json.dumps(values))
        with pytest.raises(BadInput, match=said):
            load(tmp_path / "with")


def test_a_mapping_of_a_hundred_thousand_ids_is_kept_with_the_ranker(tmp_path: Path) -> None:
    mapping = {number * 10**9 - 5: number % 90 for number in range(100_000)}
    step = {"op": "map_id", "inputs": ["item"], "output": "item", "mapping": mapping, "default": 99}
    config = RankerConfig((), (SparseFeature("item", 100),), CONFIG.layers, width=4, transforms=Pipeline.of([step]))
    save(config.build(), tmp_path / "model")
    again = load(tmp_path / "model").config
    assert again == config
    rows = {"item": [10**9 * 91 - 5, 7, None], "label": [0, 1, 0]}
    assert batch_of(pa.table(rows), again)["item.ids"].tolist() == [1, 99]
    assert stored(tmp_path, config, pa.table(rows)).batch([0])["item.ids"].tolist() == [1]


def test_texts_where_ids_were_before_are_refused_behind_a_hash_too(tmp_path: Path) -> None:
    rows = stored(tmp_path)
    known = CONFIG.with_texts(rows.texts, rows.text_inputs)
    with pytest.raises(BadInput, match="column user holds int64, and the ranker's transforms know it as texts"):
        stored(tmp_path, known, table_of(user=pa.array([1, 2, 3])))
    with pytest.raises(BadInput, match="column user holds int64"):
        batch_of_rows([row | {"user": 5} for row in ROWS], known)
    coded = table_of(user=pa.array(["ann", None, "bob"]).dictionary_encode())
    assert equal(stored(tmp_path, known, coded).batch([0, 1, 2]), rows.batch([0, 1, 2]))
    assert stored(tmp_path, known, table_of(user=pa.nulls(3))).batch([0, 1, 2])["user_id.ids"].tolist() == []


@pytest.mark.parametrize("name", ["user", "seen", "age", "time", "scores"])
def test_a_column_without_any_value_is_missing_in_all_rows(name: str, tmp_path: Path) -> None:
    rows = stored(
        tmp_path, table=table_of(**{name: pa.nulls(3)} if name != "scores" else {name: pa.array([[]] * 3, TYPES.field(name).type)})
    )
    assert len(rows) == 3
    assert any("is missing in all rows" in said for said in rows.warnings())
    if name == "seen":
        assert len(stored(tmp_path, table=table_of(seen=pa.array([[], None, []], pa.list_(pa.null()))))) == 3


def test_sampling_drops_rows_to_train_on_and_names_bad_labels_by_their_row(tmp_path: Path) -> None:
    table = pa.table({"age": [float(n) for n in range(1_000)], "user": list(range(1_000)), "label": [0, 1] * 500})
    config = RankerConfig(("age",), (), ())
    half = Pipeline.of([{"op": "sampling", "key": "user", "rate": 0.5}])
    sampled = stored(tmp_path, config, table, steps=half)
    kept = sampled.batch(range(len(sampled)))["dense"][:, 0].tolist()
    assert 400 < len(sampled) < 600
    assert len(stored_rows(str(tmp_path / "t.parquet"), config)) == 1_000
    labels = [0, 1] * 500
    labels[int(kept[-1])] = 7
    with pytest.raises(BadInput, match=f"label label is 7 in row {int(kept[-1])}, and"):
        stored(tmp_path, config, table.set_column(2, "label", pa.array(labels)), steps=half)
    labels = [0, 1] * 500
    labels[next(row for row in range(1_000) if row not in kept)] = 7
    assert len(stored(tmp_path, config, table.set_column(2, "label", pa.array(labels)), steps=half)) == len(sampled)
    for key in (pa.nulls(1_000), pa.nulls(1_000, pa.int64())):
        with pytest.raises(BadInput, match="sampling leaves none of 1,000 rows"):
            stored(tmp_path, config, table.set_column(1, "user", key), steps=half)


def test_negatives_are_drawn_row_by_row_and_positives_all_stay(tmp_path: Path) -> None:
    labels = [int(row % 10 == 0) for row in range(20_000)]  # all rows with a label are equal
    rows = stored(tmp_path, RankerConfig(("age",), (), ()), pa.table({"age": [1.0] * 20_000, "label": labels}))
    drawn = rows.with_negatives(0.1, seed=3)
    batch = drawn.batch(range(len(drawn)))["labels"]
    assert int(batch.sum()) == 2_000
    assert len(drawn) - 2_000 == pytest.approx(1_800, abs=5 * np.sqrt(1_620))
    assert np.array_equal(rows.with_negatives(0.1, 3).chosen, drawn.chosen)
    assert not np.array_equal(rows.with_negatives(0.1, 4).chosen, drawn.chosen)
    some = rows.select(np.arange(5_000, 9_000))
    assert np.array_equal(some.with_negatives(0.1, 3).chosen, [row for row in drawn.chosen if 5_000 <= row < 9_000])


def test_drawn_negatives_shift_the_logit_of_the_loss_alone() -> None:
    plain, drawn = RankerProgram(CONFIG), RankerProgram(CONFIG, negative_rate=0.1)
    torch.manual_seed(1)
    one = plain.model()
    torch.manual_seed(1)
    other = drawn.model()
    batch = batch_of_rows(ROWS, CONFIG)
    assert torch.allclose(other(batch), one(batch) + np.log(0.1), atol=1e-6)
    assert float(drawn.loss(other, batch)) == pytest.approx(float(plain.loss(one, batch)), abs=1e-6)
    q, p = float(other(batch)[0].sigmoid()), float(one(batch)[0].sigmoid())
    assert q == pytest.approx(p / (p + (1 - p) / 0.1), rel=1e-5)  # He et al. 2014, section 6.3


def normalizing(**fields: Any) -> RankerConfig:
    """A ranker of ages, scaled by those of its training rows."""
    steps = Pipeline.of([{"op": "normalize", "inputs": ["age"], "output": "age", **fields}])
    return RankerConfig(("age",), (), (EnsembleLayer(("linear",)),), transforms=steps)


def write_ages(tmp_path: Path, ages: Any, group_rows: int = 100) -> str:
    pq.write_table(pa.table({"age": ages, "label": [n % 2 for n in range(len(ages))]}), tmp_path / "t.parquet", row_group_size=group_rows)
    return str(tmp_path / "t.parquet")


def test_columns_are_scaled_by_the_training_rows_alone(tmp_path: Path) -> None:
    """Which rows are held out does not depend on the statistics of the others."""
    ages = np.random.default_rng(1).normal(40, 9, 1_000)
    uri, config = write_ages(tmp_path, ages), normalizing()
    found = measured(uri, config, config.transforms, held_out=(0.3, 5))
    rows = stored_rows(uri, RankerConfig(**config.__dict__ | {"transforms": found.steps}))
    plain = stored_rows(uri, RankerConfig(("age",), (), config.layers))
    assert np.array_equal(rows.hashes, plain.hashes)
    kept = ~held_out_items(plain.hashes, 0.3, 5)
    assert found.about["age"] == {
        "mean": pytest.approx(ages[kept].mean()),
        "variance": pytest.approx(ages[kept].var()),
        "values": kept.sum(),
        "missing": 0,
        "rows": 1_000,
        "of": 1_000,
    }
    trained_on = rows.select(np.flatnonzero(kept)).batch(range(kept.sum()))["dense"].double()
    assert float(trained_on.mean()) == pytest.approx(0, abs=1e-6)
    assert float(trained_on.var(unbiased=False)) == pytest.approx(1, abs=1e-6)
    told: list[int] = []
    assert measured(uri, config, config.transforms, held_out=(0.3, 5), on_rows=lambda done, _of: told.append(done)) == found
    assert not told, "the cache has them"
    assert measured(uri, config, config.transforms, limit=150).found[0].values == 150


def test_a_large_table_that_is_streamed_is_measured_on_row_groups_from_all_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "SAMPLED_ROWS", 250)
    uri, config = write_ages(tmp_path, [float(n) for n in range(1_050)]), normalizing()
    found = measured(uri, config, config.transforms, sampled=True)
    assert (found.rows, found.of, found.found[0].values) == (300, 1_050, 300)
    assert found.found[0].mean == pytest.approx(np.mean([n for n in range(1_050) if n // 100 in (0, 4, 8)]))


def test_a_ranker_keeps_the_statistics_of_its_training_rows(tmp_path: Path) -> None:
    uri, config = write_ages(tmp_path, [10.0, 20.0, 60.0]), normalizing()
    config = RankerConfig(**config.__dict__ | {"transforms": measured(uri, config, config.transforms).steps})
    save(config.build(), tmp_path / "model")
    again = load(tmp_path / "model").config
    assert again == config
    other_rows = batch_of(pa.table({"age": [30.0, None, float("nan"), float("inf")], "label": [0] * 4}), again)["dense"]
    assert other_rows[0] == pytest.approx(0)
    assert not torch.isfinite(other_rows[1:]).any()


def test_a_column_of_one_value_is_refused_with_its_table(tmp_path: Path) -> None:
    uri, config = write_ages(tmp_path, [3.0] * 20), normalizing()
    with pytest.raises(BadInput, match=r"step 1 \(normalize\) of age: the 20 values of the training rows have a variance of 0"):
        measured(uri, config, config.transforms)


JOBSPEC_STEPS = [
    {"op": "sigrid_hash", "inputs": ["user"], "output": "user_id", "tableSize": 50},
    {"op": "clamp", "inputs": ["clicks"], "output": "clicked", "low": 0, "high": 1},
    {"op": "sampling", "key": "user", "rate": 0.5},
]


def task(**fields: Any) -> RankTask:
    features = {"dense": ["age"], "sparse": [{"name": "user_id"}]}
    return rank_task(**({"features": features, "transforms": JOBSPEC_STEPS} | fields))


def test_a_task_keeps_all_steps_but_sampling_with_its_ranker() -> None:
    assert [step.op for step in config_of_task(task()).transforms.steps] == ["sigrid_hash", "clamp"]
    assert training_steps(task()).samples


@pytest.mark.parametrize(
    ("changes", "fields", "said", "advice"),
    [
        ({"user": None}, {}, "there is no feature 'user'", "its columns are"),
        ({"user": None, "users": pa.array(["a"] * 3)}, {}, "there is no feature 'user'", "did you mean users"),
        ({"user": pa.array([1.5, 2.5, 3.5])}, {}, "step 1 (sigrid_hash) of user: it takes texts, whole numbers", ""),
        ({"user": pa.array([["a"], ["b"], []])}, {}, "step 1 (sigrid_hash) of user: it takes texts", ""),
        ({"clicks": pa.array(["1", "0", "1"])}, {}, "step 2 (clamp) of clicks: it takes numbers", ""),
        (
            {"user_id": pa.array([1, 2, 3])},
            {},
            "the table has a column user_id, which a transform of that output would hide",
            "another name",
        ),
        ({"clicked": pa.array([1, 0, 1])}, {}, "the table has a column clicked", ""),
        ({}, {"features": {"dense": ["age", "user_id"]}, "slices": []}, "", ""),
        ({}, {"features": {"dense": ["agee"], "sparse": [{"name": "user_id"}]}}, "there is no feature 'agee'", "did you mean age?"),
        (
            {},
            {
                "features": {"dense": ["age"], "sparse": [{"name": "recent"}]},
                "transforms": [{"op": "log1p", "inputs": ["age"], "output": "recent"}],
                "label": "clicks",
            },
            "feature",
            "",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_from_its_footer(
    changes: dict[str, Any], fields: dict[str, Any], said: str, advice: str, tmp_path: Path
) -> None:
    pq.write_table(table_of(**changes), tmp_path / "t.parquet")
    if not said:  # hashes are whole numbers, and may be dense
        check_table(task(**fields), str(tmp_path / "t.parquet"))
        return
    with pytest.raises(BadInput) as error:
        check_table(task(**fields), str(tmp_path / "t.parquet"))
    assert said in error.value.cause or "sparse column recent holds double" in error.value.cause
    assert advice in error.value.next_step


def test_held_out_tables_need_no_column_to_sample_by(tmp_path: Path) -> None:
    steps = [*JOBSPEC_STEPS[:2], {"op": "sampling", "key": "request", "rate": 0.5}]
    pq.write_table(table_of(), tmp_path / "t.parquet")
    check_table(task(transforms=steps), str(tmp_path / "t.parquet"), held_out=True)
    with pytest.raises(BadInput, match="no feature 'request'"):
        check_table(task(transforms=steps), str(tmp_path / "t.parquet"))


def test_a_config_that_would_leak_is_refused() -> None:
    with pytest.raises(BadInput, match="feature user_id is made from label clicked"):
        RankerConfig(
            (), (SparseFeature("user_id", 9),), (), tasks=("clicked",), transforms=Pipeline.of([STEPS[0] | {"inputs": ["clicked"]}])
        )
