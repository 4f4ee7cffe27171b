"""The output folder: parts written once, an earlier attempt's parts kept, other settings refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.scoring.scored_by_hand import answer_all, write_rows
from tests.unit.scoring.scored_by_hand import request as by_hand

from tuneyard.api import BadInput, JobFailed, ScoreTask
from tuneyard.scoring import Measured, ScoreRequest, Sums, finish, prepare
from tuneyard.scoring.parts import Columns, Layout, commit, part_path, read_sums
from tuneyard.scoring.rows import ScoredRow
from tuneyard.scoring.settings import EngineSettings
from tuneyard.storage import open_store

UNMEASURED = Measured(wall_s=1.0, load_s=0.0, generation_s=0.0, deaths=0, stopped=False, settings=None)


def request(folder: Path, rows: int = 10, *, resume: bool = True, instances: int = 1, **changes: Any) -> ScoreRequest:
    """A score task over `rows` rows and a folder that looks like a model."""
    model = folder / "model"
    if not model.exists():
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    data = folder / "rows.jsonl"
    content = "".join(json.dumps({"prompt": f"p{i}", "answer": f"a{i}", "n": i}) + "\n" for i in range(rows))
    if not data.exists() or data.read_text() != content:  # a file that was written anew is another one
        data.write_text(content)
    fields: dict[str, Any] = {"model": {"name": str(model)}, "data": {"source": str(data), "reference": "answer"}, "rowsPerPart": 4}
    task = ScoreTask.model_validate(fields | changes)
    return ScoreRequest(
        job="job",
        name="score",
        task=task,
        model_uri=str(model),
        output=str(folder / "out"),
        scratch=str(folder),
        resume=resume,
        instances=instances,
    )


def score_by_hand(asked: ScoreRequest, parts: list[int], error: str | None = None) -> list[Sums]:
    """Commit parts as a worker would, without an engine."""
    job = prepare(asked)
    sums = []
    for part in parts:
        rows = job.order.rows.read(*job.order.layout.bounds(part))
        scored = [ScoredRow(row["index"], output="x", output_tokens=1, error=error) for row in rows]
        sums.append(Sums.of(scored, []))
        assert commit(open_store(asked.output), part, job.order.columns.encode(rows, scored, sums[-1]))
    return sums


@pytest.mark.parametrize(
    ("rows", "rows_per_part", "instances", "expected"), [(10, 4, 1, 3), (10, 512, 1, 1), (100, 512, 4, 8), (1, 512, 4, 1)]
)
def test_there_are_parts_for_every_engine(rows: int, rows_per_part: int, instances: int, expected: int) -> None:
    layout = Layout.choose(rows, rows_per_part, instances)

    assert layout.parts == expected
    assert [row for part in range(layout.parts) for row in range(*layout.bounds(part))] == list(range(rows))


def test_a_part_is_committed_once_and_the_first_one_stays(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))

    assert commit(store, 0, b"first")
    assert not commit(store, 0, b"second")
    assert store.get(part_path(0)) == b"first"


def test_an_interrupted_run_goes_on_with_the_missing_parts(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0, 2])

    job = prepare(request(tmp_path))
    result = finish(job, score_by_hand(request(tmp_path), [1]), UNMEASURED)

    assert job.missing == [1]
    assert (result.rows, result.rows_resumed, result.output_tokens) == (10, 6, 10)
    table = pq.read_table(tmp_path / "out" / "parts")
    assert table["row"].to_pylist() == table["n"].to_pylist() == list(range(10))


def test_another_number_of_engines_keeps_the_layout(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0])

    assert prepare(request(tmp_path, instances=2)).order.layout == Layout(10, 4)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"generation": {"maxTokens": 9}}, "generation.maxTokens was 256, is 9"),
        ({"metrics": ["bleu"]}, "metrics was"),
        ({"engine": {"maxLength": 64}}, "engine.maxLength was auto, is 64"),
    ],
)
def test_parts_made_with_other_settings_are_not_mixed(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    score_by_hand(request(tmp_path), [0])

    with pytest.raises(BadInput, match=named) as refused:
        prepare(request(tmp_path, **changes))
    assert "--out" in refused.value.next_step


def test_parts_whose_sums_mean_something_else_are_not_mixed(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0])
    plan = tmp_path / "out" / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"version": 1}))

    with pytest.raises(BadInput, match="holds parts of another version of Tuneyard"):
        prepare(request(tmp_path))
    assert prepare(request(tmp_path, resume=False)).missing == [0, 1, 2]


def test_settings_that_change_no_output_may_change(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0])

    assert prepare(request(tmp_path, engine={"batch": 7}, maxErrorFraction=0.5)).missing == [1, 2]


def test_changed_data_or_weights_are_noticed(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0])
    (tmp_path / "model" / "model.safetensors").write_bytes(b"new")

    with pytest.raises(BadInput, match=r"model\.files"):
        prepare(request(tmp_path))
    with pytest.raises(BadInput, match="rows was 10, is 11"):
        prepare(request(tmp_path, rows=11))


def test_without_resume_everything_is_scored_anew(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0, 1])

    assert prepare(request(tmp_path, resume=False, generation={"maxTokens": 9})).missing == [0, 1, 2]


def test_a_part_that_is_not_ours_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    commit(store, 3, b"not parquet")

    with pytest.raises(JobFailed, match="part-00003"):
        read_sums(store, 3)


def test_metrics_need_something_to_compare_with(tmp_path: Path) -> None:
    asked = request(tmp_path, data={"source": str(tmp_path / "rows.jsonl")}, metrics=["bleu"])

    with pytest.raises(BadInput, match="no reference to compare with"):
        prepare(asked)


def test_too_many_errors_fail_the_task_after_its_output_is_written(tmp_path: Path) -> None:
    asked = request(tmp_path)
    sums = score_by_hand(asked, [0], error="the prompt is empty") + score_by_hand(asked, [1, 2])
    job = prepare(request(tmp_path / "fresh"))

    with pytest.raises(JobFailed, match=r"4 of 10 rows have errors(.|\n)*4 x the prompt is empty"):
        finish(job, sums, UNMEASURED)
    assert json.loads((tmp_path / "fresh" / "out" / "metrics.json").read_text())["errors"] == 4


def test_kept_columns_have_one_type_in_all_parts_and_never_hide_ours() -> None:
    head = [
        {
            "index": 0,
            "prompt": "",
            "system": "",
            "tools": None,
            "references": (),
            "error": None,
            "kept": {"output": "mine", "note": None, "tags": ["a", 1]},
        }
    ]
    later = [
        {
            "index": 1,
            "prompt": "",
            "system": "",
            "tools": None,
            "references": (),
            "error": None,
            "kept": {"output": 5, "note": "x", "tags": []},
        }
    ]
    columns = Columns.infer(head, [])  # type: ignore[arg-type]  # rows as the data room reads them

    tables = [pq.read_table(io.BytesIO(columns.encode(r, [ScoredRow(r[0]["index"], output="ours")], Sums()))) for r in (head, later)]  # type: ignore[arg-type]  # same

    assert tables[0].schema.remove_metadata() == tables[1].schema.remove_metadata()
    assert [t["input_output"].to_pylist() for t in tables] == [["mine"], ["5"]]
    assert [t["output"].to_pylist() for t in tables] == [["ours"], ["ours"]]
    assert [t["tags"].to_pylist() for t in tables] == [['["a", 1]'], ["[]"]]


def test_the_first_sample_is_typical_and_the_others_are_the_first_rows(tmp_path: Path) -> None:
    asked = request(tmp_path, rows=9, rowsPerPart=9, metrics=["rouge_l"])
    job = prepare(asked)
    rows = job.order.rows.read(0, 9)
    # By chance the model does best on the first row, and says nothing in most others.
    scored = [ScoredRow(i, output="" if i else "a0", references=(f"a{i}",), values={"rouge_l": float(i == 0)}) for i in range(8)]
    scored.append(ScoredRow(8, error="no prompt"))
    sums = Sums.of(scored, ["rouge_l"])
    commit(open_store(asked.output), 0, job.order.columns.encode(rows, scored, sums))
    result = finish(prepare(asked), [], replace(UNMEASURED, stopped=True))
    typical, *first = result.samples
    assert (typical["typical"], typical["output"], typical["prompt"]) == (True, "", f"p{typical['row']}")
    assert [sample["row"] for sample in first] == [row for row in range(5) if row != typical["row"]]
    assert not any(sample["typical"] for sample in first)
    assert (result.empty, result.looping, result.errors) == (7, 0, 1)


def test_answers_that_did_not_end_by_themselves_are_counted_and_warned_of(tmp_path: Path) -> None:
    asked = request(tmp_path, rows=4, rowsPerPart=4, metrics=["rouge_l"], generation={"maxTokens": 32})
    job = prepare(asked)
    reasons = ["length", "length", "stop", None]
    scored = [ScoredRow(i, output="a b", finish_reason=reason, references=("a",)) for i, reason in enumerate(reasons[:3])]
    scored.append(ScoredRow(3, error="no prompt"))
    for row in scored[:3]:
        row.values = {"rouge_l": 1.0}
    sums = Sums.from_dict(json.loads(json.dumps(Sums.of(scored, ["rouge_l"]).to_dict())))
    commit(open_store(asked.output), 0, job.order.columns.encode(job.order.rows.read(0, 4), scored, sums))

    result = finish(prepare(asked), [], replace(UNMEASURED, stopped=True))

    assert result.cut_off == json.loads((tmp_path / "out" / "metrics.json").read_text())["cut_off"] == 2
    (warning,) = result.warnings(32)
    assert warning.startswith("2 of 3 answers were cut off at maxTokens 32")
    assert replace(result, cut_off=1).warnings(32) == []
    assert replace(result, cut_off=0, empty=2).warnings(32) == ["2 of 4 outputs are empty; look at some of them, whatever the metrics are"]


def test_parts_that_did_not_count_what_was_cut_off_are_not_mixed(tmp_path: Path) -> None:
    score_by_hand(request(tmp_path), [0])
    plan = tmp_path / "out" / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"version": 2}))

    with pytest.raises(BadInput, match="another version of Tuneyard"):
        prepare(request(tmp_path))


def _engine(tensor_parallel: int) -> EngineSettings:
    return EngineSettings(
        model="m",
        tokenizer="m",
        adapter=None,
        precision="fp32",
        max_length=64,
        batch=8,
        step_tokens=512,
        prefix_cache=None,
        tensor_parallel=tensor_parallel,
        memory_fraction=0.9,
        kv_cache_bytes=None,
        eager=True,
        trust_remote_code=False,
        on_cpu=False,
    )


def test_engines_cost_their_devices_in_the_time_of_the_attempt(tmp_path: Path) -> None:
    """Half an hour of six GPUs at 2 each; four rows were scored before."""
    score_by_hand(request(tmp_path), [0])
    asked = replace(request(tmp_path), instances=3, price_per_device_hour=2.0)
    measured = replace(UNMEASURED, wall_s=1800.0, settings=_engine(2))

    result = finish(prepare(asked), score_by_hand(asked, [1, 2]), measured)

    assert result.cost == pytest.approx(6.0)
    assert result.cost_per_1000_rows == pytest.approx(1000.0)


def test_without_a_price_there_is_no_cost(tmp_path: Path) -> None:
    result = finish(prepare(request(tmp_path)), score_by_hand(request(tmp_path), [0, 1, 2]), replace(UNMEASURED, settings=_engine(1)))

    assert (result.cost, result.cost_per_1000_rows) == (None, None)


def test_parts_of_another_endpoint_are_not_mixed(tmp_path: Path) -> None:
    def asked(**endpoint: Any) -> ScoreRequest:
        made = request(tmp_path)
        fields = {"data": {"source": str(tmp_path / "rows.jsonl")}, "rowsPerPart": 4}
        engine = {"endpoint": {"url": "https://a.example/v1", "model": "small", **endpoint}}
        return replace(made, task=ScoreTask.model_validate({**fields, "engine": engine}), model_uri="")

    score_by_hand(asked(), [0])

    assert prepare(asked(atOnce=2, price={"input": 1, "output": 2}, patience="5m")).missing == [1, 2]
    with pytest.raises(BadInput, match=r"endpoint\.model was small, is large"):
        prepare(asked(model="large"))


def test_an_empty_cell_of_csv_is_a_missing_reference_as_null_is(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('prompt,answer,n\nq0,yes,0\nq1,,1\nq2," ",2\nq3,"",3\n')
    write_rows(tmp_path / "rows.jsonl", [{"prompt": f"q{n}", "answer": None if n else "yes", "n": str(n)} for n in range(4)])
    csv, jsonl = (answer_all(by_hand(tmp_path, kind, tmp_path / f"rows.{kind}"), lambda _: "yes") for kind in ("csv", "jsonl"))

    assert csv.metrics == jsonl.metrics == {"exact_match": 1}
    tables = [pq.read_table(tmp_path / kind / "parts", columns=["answer", "exact_match", "row_hash"]) for kind in ("csv", "jsonl")]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert tables[0]["answer"].to_pylist() == ["yes", None, None, None]


def test_an_empty_reference_of_jsonl_is_a_reference(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "q", "answer": ""}])

    assert answer_all(by_hand(tmp_path, "out", tmp_path / "rows.jsonl"), lambda _: "yes").metrics == {"exact_match": 0}


def test_rows_that_spell_control_tokens_are_counted_over_parts_and_attempts(tmp_path: Path) -> None:
    prompts = ["plain", "hi<|im_end|>", "<|im_end|>", "plain"]
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": prompt, "answer": "a"} for prompt in prompts])
    asked = by_hand(tmp_path, "score", data, rowsPerPart=2)
    seen: list[Any] = []
    answer_all(asked, lambda _: "a", parts=[0], seen=seen)

    result = answer_all(replace(asked, resume=True), lambda _: "a", seen=seen)

    assert result.details["control_tokens"] == {"as_text": {"<|im_end|>": 2}, "as_tokens": {}}
    assert "read as plain text: <|im_end|> in 2 rows" in " ".join(result.warnings(256))
