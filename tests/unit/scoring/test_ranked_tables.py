"""A table that a ranker scores: what comes out, what has errors of its own, what is refused, and what goes on after a stop. Without Ray."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tuneyard.api import BadInput, JobFailed, ScoreTask
from tuneyard.ranking import EnsembleLayer, RankerConfig, RankMetrics, SparseFeature, batch_of, load, save
from tuneyard.scoring import Measured, ScoreRequest, work_of
from tuneyard.scoring.parts import part_path
from tuneyard.scoring.ranker.work import RankedResult, RankerWork

CONFIG = RankerConfig(
    dense=("age", "scores[7]"),
    sparse=(SparseFeature("item", 50), SparseFeature("tags", 20, pooling="sum"), SparseFeature("seen", 30, length=3)),
    layers=(EnsembleLayer(("dlrm", "linear"), outputs=2),),
    width=4,
    hidden=(8,),
    tasks=("clicked", "bought"),
)
MEASURED = Measured(wall_s=1.0, load_s=0.0, generation_s=0.5, deaths=0, stopped=False, settings=None)
ROWS = 100


def rows(count: int = ROWS, first: int = 0, **changes: Any) -> pa.Table:
    """Rows of the config's features and labels, with some of everything that a ranker takes."""
    numbers = range(first, first + count)
    columns: dict[str, Any] = {
        "request": list(numbers),
        "age": pa.array([None if n % 9 == 0 else float("nan") if n % 7 == 0 else n / 3 for n in numbers], type=pa.float64()),
        "scores": pa.array([[(7, n / 10), (8, 1.0)] if n % 2 else [(8, 2.0)] for n in numbers], type=pa.map_(pa.int64(), pa.float32())),
        "item": pa.array([None if n % 11 == 0 else n * 10**12 - 5 if n % 5 == 0 else n % 50 for n in numbers], type=pa.int64()),
        "tags": pa.array([None if n % 13 == 0 else list(range(n % 4)) for n in numbers], type=pa.list_(pa.int64())),
        "seen": pa.array([[n, 2 * n, -3, 4][: n % 5] for n in numbers], type=pa.list_(pa.int32())),
        "country": pa.array([["de", "fr", None, "it"][n % 4] for n in numbers], type=pa.string()),
        "clicked": pa.array([None if n % 17 == 0 else n % 3 == 0 for n in numbers], type=pa.bool_()),
        "bought": pa.array([[0, 1, 2][n % 3] for n in numbers], type=pa.int8()),
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ranker, and a table of two files of several row groups with an empty one in between."""
    torch.manual_seed(3)
    save(CONFIG.build(), tmp_path / "model")
    (tmp_path / "table").mkdir()
    pq.write_table(rows(60), tmp_path / "table" / "a.parquet", row_group_size=25)
    pq.write_table(rows(0), tmp_path / "table" / "b.parquet")
    pq.write_table(rows(40, 60), tmp_path / "table" / "c.parquet", row_group_size=16)
    return tmp_path


def request(folder: Path, source: str = "table", **fields: Any) -> ScoreRequest:
    data = {"source": str(folder / source)} | fields.pop("data", {})
    values = {"model": {"name": str(folder / "model")}, "data": data, "rowsPerPart": 17} | fields
    task = ScoreTask.model_validate(values)
    places = {"output": str(folder / "out"), "scratch": str(folder / "scratch")}
    return ScoreRequest(job="job", name="score", task=task, model_uri=str(folder / "model"), **places)


def opened(asked: ScoreRequest) -> RankerWork:
    work = work_of(asked)
    assert isinstance(work, RankerWork)
    return work


def scored(asked: ScoreRequest, parts: int | None = None) -> RankedResult:
    """As a pool does it, in this process; only so many of the missing parts, the last ones first."""
    work = opened(asked)
    worker = work.worker(work.order)
    worker.load()
    for part in list(reversed(work.missing))[:parts]:
        work.take(worker.score(part).sums)
    return work.finish(MEASURED)


def output(folder: Path) -> pa.Table:
    return pq.read_table(folder / "out" / "parts")


def own_probabilities(folder: Path, table: pa.Table) -> np.ndarray:
    """Of the ranker itself, in one batch."""
    ranker = load(folder / "model")
    entry = pa.array([dict(value or ()).get(7) for value in table.column("scores").to_pylist()], type=pa.float32())
    with torch.inference_mode():
        found: np.ndarray = ranker(batch_of(table.append_column("scores[7]", entry), CONFIG, labels=False)).sigmoid().numpy()
    return found


def test_every_row_comes_out_once_in_order_with_the_rankers_own_probabilities(folder: Path) -> None:
    result = scored(request(folder, data={"keep": ["request", "tags", "scores"]}, ranking={"batch": 7}))

    found, whole = output(folder), rows()
    assert found.schema.names == ["row", "request", "tags", "scores", "probability_clicked", "probability_bought", "error"]
    assert found.column("row").to_pylist() == found.column("request").to_pylist() == list(range(ROWS))
    assert found.column("tags").to_pylist() == whole.column("tags").to_pylist()
    assert found.column("scores").to_pylist() == whole.column("scores").to_pylist()
    made = np.stack([found.column(f"probability_{name}").to_numpy() for name in CONFIG.tasks], 1)
    assert np.allclose(made, own_probabilities(folder, whole), atol=1e-6)
    assert (result.rows, result.errors, result.status, result.rows_per_s) == (ROWS, 0, "succeeded", 200.0)
    assert json.loads((folder / "out" / "metrics.json").read_text())["rows"] == ROWS


def test_only_what_is_needed_is_read(folder: Path) -> None:
    work = opened(request(folder))
    assert list(work.order.table.columns) == ["age", "scores[7]", "item", "tags", "seen", "clicked", "bought"]


def test_figures_are_those_of_the_rows_that_have_a_label(folder: Path) -> None:
    ranking = {"slices": ["country"], "windows": {"every": 30}, "baseRate": 0.4}
    result = scored(request(folder, ranking=ranking))

    labels = np.array([np.nan if label is None else float(label) for label in rows().column("clicked").to_pylist()])
    probabilities = own_probabilities(folder, rows())[:, 0].astype(np.float64)
    logits = np.log(probabilities / (1 - probabilities))
    expected = RankMetrics()
    expected.update(logits, labels)
    whole = expected.figures()
    assert result.metrics["normalised_entropy"] == pytest.approx(whole.normalised_entropy, rel=1e-5)
    assert result.metrics["calibration"] == pytest.approx(whole.calibration, rel=1e-5)
    assert result.metrics["auc"] == pytest.approx(whole.auc, abs=whole.auc_error + 1e-6)
    assert set(result.metrics) == {f"{label}{name}" for label in ("", "bought.") for name in ("normalised_entropy", "auc", "calibration")}
    figures = result.judged["clicked"]
    assert (figures["all"]["rows"], figures["all"]["left_out"]) == (94, 6)
    assert figures["all"]["entropy_above_base_rate"] == pytest.approx(whole.entropy_above(0.4), rel=1e-5)
    assert set(figures["slices"]["country"]) == {"de", "fr", "it", "(missing)"}
    assert [window["start"] for window in figures["windows"]] == [0, 30, 60, 90]
    for window in figures["windows"]:
        own = RankMetrics()
        rows_of = slice(int(window["start"]), int(window["stop"]))
        own.update(logits[rows_of], labels[rows_of])
        assert window["log_loss"] == pytest.approx(own.figures().log_loss, rel=1e-5)
    assert result.judged["bought"]["all"]["rows"] == 67  # 2 is no label


def test_the_most_frequent_values_have_slices_and_others_are_together(folder: Path) -> None:
    data = rows(country=pa.array(["a"] * 50 + ["b"] * 30 + ["c", "d"] * 10))
    pq.write_table(data, folder / "other.parquet")
    result = scored(request(folder, "other.parquet", ranking={"slices": ["country"], "sliceValues": 2}))
    found = result.judged["clicked"]["slices"]["country"]
    assert list(found) == ["a", "b", "(other)"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ns"), pa.timestamp("s", "Europe/Vienna"), pa.date32()])
def test_windows_of_time(folder: Path, kind: pa.DataType) -> None:
    days = np.arange(ROWS) // 25
    times = pa.array(days, type=pa.int32()).cast(kind) if kind == pa.date32() else pa.array(days * 86_400).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        times = times.cast(pa.timestamp("s")).cast(kind) if kind.tz is None else times.cast(kind)
    pq.write_table(rows(time=times), folder / "times.parquet")
    ranking = {"windows": {"every": 86_400, "column": "time"}}
    result = scored(request(folder, "times.parquet", ranking=ranking))
    windows = result.judged["clicked"]["windows"]
    assert [window["start"] for window in windows] == [0, 86_400, 172_800, 259_200]
    assert sum(window["rows"] for window in windows) == 94


def test_a_run_that_was_stopped_goes_on_to_the_same_figures(folder: Path) -> None:
    asked = request(folder, ranking={"slices": ["country"], "windows": {"every": 30}})
    whole = scored(replace(asked, output=str(folder / "whole")))
    first = scored(asked, parts=2)
    assert 0 < first.rows < ROWS
    before = (folder / "out" / part_path(5)).stat().st_mtime_ns

    result = scored(asked)

    assert result.rows_resumed == first.rows
    assert (folder / "out" / part_path(5)).stat().st_mtime_ns == before
    assert output(folder).column("row").to_pylist() == list(range(ROWS))
    assert flat(result.judged) == pytest.approx(flat(whole.judged), rel=1e-9)
    assert scored(asked).rows_resumed == ROWS


def flat(values: Any, path: str = "") -> dict[str, float]:
    pairs = enumerate(values) if isinstance(values, list) else values.items() if isinstance(values, dict) else None
    return {path: values} if pairs is None else {name: each for key, value in pairs for name, each in flat(value, f"{path}/{key}").items()}


def test_a_part_that_another_attempt_has_written_stays_and_counts_once(folder: Path) -> None:
    one, two = opened(request(folder)), opened(request(folder))
    for work in (one, two):
        worker = work.worker(work.order)
        worker.load()
        for part in work.missing:
            work.take(worker.score(part).sums)
    assert one.finish(MEASURED).metrics == two.finish(MEASURED).metrics


def test_parts_of_another_ranker_or_other_slices_are_never_mixed(folder: Path) -> None:
    scored(request(folder), parts=1)
    with pytest.raises(BadInput, match=r"ranking\.slices was \[\], is \['country'\]"):
        opened(request(folder, ranking={"slices": ["country"]}))
    save(CONFIG.build(), folder / "model")
    with pytest.raises(BadInput, match=r"model\.files was"):
        opened(request(folder))


def test_batches_and_the_base_rate_may_change(folder: Path) -> None:
    scored(request(folder), parts=1)
    assert scored(request(folder, ranking={"batch": 3, "baseRate": 0.1})).rows == ROWS


def test_a_null_inside_a_list_is_an_error_of_its_row(folder: Path) -> None:
    tags = rows().column("tags").to_pylist()
    tags[3], tags[40] = [1, None], [None]
    pq.write_table(rows(tags=pa.array(tags, type=pa.list_(pa.int64()))), folder / "nulls.parquet", row_group_size=33)
    result = scored(request(folder, "nulls.parquet"))
    found = output(folder)
    errors = {row["row"]: row["error"] for row in found.to_pylist() if row["error"] is not None}
    assert errors == dict.fromkeys((3, 40), "a list of tags holds a null")
    assert [row for row, value in enumerate(found.column("probability_clicked").to_pylist()) if value is None] == [3, 40]
    assert (result.errors, result.details["errors"]) == (2, {"a list of tags holds a null": 2})
    assert result.judged["clicked"]["all"]["rows"] == 92


def test_too_many_errors_fail_the_task_once_everything_is_written(folder: Path) -> None:
    pq.write_table(rows(tags=pa.array([[None]] * ROWS, type=pa.list_(pa.int64()))), folder / "nulls.parquet")
    with pytest.raises(JobFailed, match="100 of 100 rows have errors"):
        scored(request(folder, "nulls.parquet"))
    assert output(folder).num_rows == ROWS


def test_a_damaged_row_group_has_errors_and_the_others_are_scored(folder: Path) -> None:
    path = folder / "table" / "a.parquet"
    chunk = pq.read_metadata(path).row_group(1).column(1)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset : chunk.data_page_offset + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    scored(request(folder, data={"keep": ["request"]}, maxErrorFraction=0.3))
    found = output(folder)
    bad = [row["row"] for row in found.to_pylist() if row["error"] is not None]
    assert bad == list(range(25, 50))
    assert "row group 1 cannot be read" in found.column("error")[25].as_py()
    assert found.column("row").to_pylist() == list(range(ROWS))


def test_a_list_of_a_hundred_thousand_ids_is_scored(folder: Path) -> None:
    tags = rows().column("tags").to_pylist()
    seen = rows().column("seen").to_pylist()
    tags[50], seen[51] = list(range(100_000)), list(range(100_000))
    table = rows(tags=pa.array(tags, type=pa.list_(pa.int64())), seen=pa.array(seen, type=pa.list_(pa.int32())))
    pq.write_table(table, folder / "long.parquet")
    scored(request(folder, "long.parquet"))
    made = output(folder).column("probability_clicked").to_numpy()
    assert np.allclose(made, own_probabilities(folder, table)[:, 0], atol=1e-6)


def test_batches_of_long_lists_have_fewer_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuneyard.scoring.ranker import probabilities

    monkeypatch.setattr(probabilities, "_BATCH_BYTES", 2_000)
    scored(request(folder))
    made = output(folder).column("probability_clicked").to_numpy()
    assert np.allclose(made, own_probabilities(folder, rows())[:, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["age", "item", "tags", "seen"])
def test_a_column_of_nulls_alone_is_scored_as_missing(folder: Path, name: str) -> None:
    table = rows(**{name: pa.nulls(ROWS)})
    pq.write_table(table, folder / "nulls.parquet")
    result = scored(request(folder, "nulls.parquet"))
    assert result.errors == 0
    assert np.allclose(output(folder).column("probability_clicked").to_numpy(), own_probabilities(folder, table)[:, 0], atol=1e-6)


def test_a_table_without_labels_is_scored_and_not_judged(folder: Path) -> None:
    pq.write_table(rows(clicked=None, bought=None), folder / "bare.parquet")
    result = scored(request(folder, "bare.parquet", ranking={"slices": ["country"]}))
    assert (result.rows, result.metrics, result.judged) == (ROWS, {}, {})
    assert result.details["notes"] == ["the table has no column clicked, bought: its scores are not judged"]


def test_labels_that_are_all_missing_give_no_figures(folder: Path) -> None:
    pq.write_table(rows(clicked=pa.nulls(ROWS), bought=pa.array([0] * ROWS)), folder / "unlabelled.parquet")
    result = scored(request(folder, "unlabelled.parquet"))
    assert set(result.judged) == {"bought"}
    assert result.metrics == {}  # one label alone has neither entropy nor curve, and the calibration is infinite


def test_a_column_that_some_files_lack_is_null_there_and_said(folder: Path) -> None:
    pq.write_table(rows(40, 60, age=None), folder / "table" / "c.parquet")
    work = opened(request(folder))
    (said,) = work.remarks
    assert "1 of 3 files have no column age" in said
    assert "c.parquet" in said


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"age": None, "ages": pa.array([1.0] * ROWS)}, "there is no feature 'age'"),
        ({"tags": None}, "there is no feature 'tags'"),
        ({"age": pa.array(["old"] * ROWS)}, "column age has values of type string"),
        ({"item": pa.array([1.5] * ROWS)}, "sparse column item holds double"),
        ({"clicked": pa.array(["yes"] * ROWS)}, "column clicked has values of type string"),
        ({"scores": pa.array([1.0] * ROWS)}, r"scores\[7\]: column scores is double"),
    ],
)
def test_a_wrong_column_is_refused_by_name_before_anything_is_scored(folder: Path, changes: dict[str, Any], says: str) -> None:
    pq.write_table(rows(**changes), folder / "wrong.parquet")
    with pytest.raises(BadInput, match=says):
        opened(request(folder, "wrong.parquet"))
    assert not (folder / "out").exists()


def test_a_type_that_differs_between_files_is_refused_by_name(folder: Path) -> None:
    pq.write_table(rows(40, 60, age=pa.array(["old"] * 40)), folder / "table" / "c.parquet")
    with pytest.raises(BadInput, match="age"):
        opened(request(folder))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data": {"keep": ["reqest"]}}, "did you mean request"),
        ({"ranking": {"slices": ["county"]}}, "did you mean country"),
        ({"ranking": {"slices": ["tags"]}}, r"column tags holds list<.*>"),
        ({"ranking": {"windows": {"every": 1, "column": "country"}}}, "column country holds string"),
        ({"metrics": ["perplexity"], "data": {"reference": "clicked"}}, r"score\.data\.reference, score\.metrics"),
        ({"generation": {"maxTokens": 3}, "engine": {"batch": 2}}, r"score\.generation, score\.engine"),
        ({"data": {"limit": 5, "fileType": "csv"}}, r"score\.data\.fileType"),
    ],
)
def test_what_a_ranker_has_nothing_to_do_with_is_refused(folder: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as error:
        opened(request(folder, **fields))
    assert re.search(says, f"{error.value.cause} {error.value.next_step}")


def test_a_table_without_rows_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="the data set is empty"):
        opened(request(folder, "table/b.parquet"))


def test_a_limit_scores_the_first_rows(folder: Path) -> None:
    assert scored(request(folder, data={"limit": 61})).rows == 61
    assert output(folder).column("row").to_pylist() == list(range(61))


def test_fields_of_rankers_are_refused_for_language_models(folder: Path) -> None:
    (folder / "language").mkdir()
    (folder / "language" / "config.json").write_text("{}")
    asked = replace(request(folder, ranking={"slices": ["country"]}), model_uri=str(folder / "language"))
    with pytest.raises(BadInput, match=r"score\.ranking is for rankers"):
        work_of(asked)


def test_kept_columns_do_not_hide_those_that_scoring_adds(folder: Path) -> None:
    pq.write_table(rows(row=pa.array(["x"] * ROWS), error=pa.array([1] * ROWS)), folder / "names.parquet")
    scored(request(folder, "names.parquet", data={"keep": ["row", "error", "clicked"]}))
    assert output(folder).schema.names[:4] == ["row", "input_row", "input_error", "clicked"]
