"""Comparisons of runs, and diffs by word."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from tests.servers.consoles import make_comparison

from tuneyard.console.comparison import charts_of, columns_of, figures_of, settings_of
from tuneyard.console.local.pairs import pairs_of
from tuneyard.console.local.run_record import RunRecord
from tuneyard.console.local.score_rows import ShownRow, Side, paired_figures, place_of, rows_at, same_data, word_diff
from tuneyard.data.visible import visible
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.parts import Columns, added_names
from tuneyard.scoring.rows import ScoredRow
from tuneyard.tracking.past import PastJob

NOW = datetime(2026, 11, 26, 8, 0, tzinfo=UTC)


MEASURED: list[Any] = ["exact_match", "perplexity", "module:mine:lower"]


def make_record(tasks: dict[str, Any], spec: dict[str, Any] | None = None, name: str = "bot") -> RunRecord:
    run = PastJob(name * 2, name, "default", "succeeded", "", "", NOW, NOW, 1, 0.0)
    return RunRecord(run, {"spec": spec or {}}, [], tasks, None, False)


def make_spec(rate: float, **train: Any) -> dict[str, Any]:
    return {"tasks": [{"name": "train", "train": {"optimizer": {"learningRate": rate}, **train}}]}


def test_settings_are_named_by_task_and_a_missing_one_differs() -> None:
    found = settings_of([make_record({}, make_spec(0.1, steps=3)), make_record({}, make_spec(0.2))])
    assert {(row.path, *row.values) for row in found if row.differs} == {
        ("train: optimizer.learningRate", "0.1", "0.2"),
        ("train: steps", "3", ""),
    }


def test_plans_are_compared_too() -> None:
    records = [make_record({"train": {"plan": {"zero": zero, "memory": {"total_gb": zero}}}}) for zero in (0, 3)]
    assert [(row.path, *row.values) for row in settings_of(records)] == [("train: plan.zero", "0", "3")]


def test_the_better_figure_is_marked_by_its_direction() -> None:
    tasks = [
        {"judge": {"metrics": {"exact_match": score, "perplexity": loss}, "wall_s": 3.0 + score / 1e4}}
        for score, loss in ((0.2, 9.0), (0.4, 3.0))
    ]
    found = {row.title: row for row in figures_of(columns_of([make_record(each) for each in tasks]))}
    assert found["judge: exact match"].best == {1}
    assert found["judge: perplexity"].best == {1}
    assert found["judge: perplexity"].better == "lower is better"
    assert found["judge: wall time"].best == frozenset(), "both read as 3.00 s"
    assert "judge: MFU" not in found


def test_curves_of_all_runs_are_in_one_drawing() -> None:
    tasks = [{"train": {"series": {"step": [1, 2], "loss": [start, 1.0]}}} for start in (3.0, 2.0)]
    (chart,) = charts_of(columns_of([make_record(each) for each in tasks]))
    assert chart.title == "Training loss"
    assert [name for name, _, _ in chart.legend] == ["A bot", "B bot"]


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_diff_shows_each_text_whole(old: str, new: str) -> None:
    for text, shown in zip((old, new), word_diff(old, new), strict=True):
        assert isinstance(shown, Markup)
        assert html.unescape(re.sub(r"</?(?:ins|del)>", "", str(shown))) == html.unescape(html.escape(visible(text)))


def test_a_diff_marks_words() -> None:
    old, new = word_diff("the red fox", "the blue fox")
    assert (str(old), str(new)) == ("the <del>red</del> fox", "the <ins>blue</ins> fox")


def two_tasks(real: bool | None, own: str = "mine:rate:lower") -> tuple[Side, Side]:
    tasks = {name: {"kind": "score", "metrics": {"rate": value}} for name, value in (("base", 0.5), ("tuned", 0.4))}
    spec = {"tasks": [{"name": name, "score": {"ownMetrics": [own], "data": {"source": name}}} for name in tasks]}
    said = {"task": "tuned", "against": "base", "figures": [{"figure": "rate", "real": real, "better": True}]}
    record = replace(make_record(tasks, spec), comparisons=[said])
    return Side(record, "base"), Side(record, "tuned")


def test_two_tasks_side_by_side_have_the_word_of_their_rows_and_the_direction_of_their_own_metric() -> None:
    for real, word, best in ((True, "tuned better", {1}), (False, "no real difference", set()), (None, "too few rows", set())):
        sides = two_tasks(real)
        (row, *_) = figures_of(columns_of([side.alone() for side in sides]), paired=paired_figures(*sides))
        assert (row.title, row.better, row.verdict, row.best) == ("score: rate", "lower is better", word, frozenset(best))


def test_rows_are_the_same_by_their_hashes_and_without_them_by_their_sources() -> None:
    def row(asks_the_same: bool | None) -> ShownRow:
        return ShownRow(0, "", "", [], [], False, asks_the_same)

    sides = two_tasks(True)
    assert same_data(*sides, [row(True), row(None)])
    assert not same_data(*sides, [row(True), row(False)])
    assert not same_data(*sides, [row(None)])
    assert same_data(sides[0], sides[0], [row(None)])


def test_a_comparison_that_cannot_be_read_is_left_out() -> None:
    whole = make_comparison("tuned", "base")
    broken = [
        {"task": "tuned", "against": "base", "figures": [{"figure": "rate"}]},
        {**whole, "better_rows": [{"row": "x"}]},
        make_comparison("tuned", "gone"),
    ]
    record = replace(two_tasks(True)[0].record, comparisons=[*broken, whole])
    (pair,) = pairs_of(record)
    assert (pair.task, pair.against, pair.better_rows) == ("tuned", "base", [41, 0])
    assert pair.sides == [f"{record.run.id}/base", f"{record.run.id}/tuned"]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_row_is_found_by_its_number_also_in_a_sample(tmp_path: Path, numbered: bool) -> None:
    (tmp_path / "judge" / "parts").mkdir(parents=True)
    parts = [[3, 5, 8], [13, 21]] if numbered else [[0, 1, 2], [3, 4]]
    for part, numbers in enumerate(parts):
        columns = {"output": ["x"] * len(numbers), **({"row": numbers} if numbered else {})}
        pq.write_table(pa.table(columns), tmp_path / "judge" / "parts" / f"part-{part:05d}.parquet")
    side = Side(replace(make_record({"judge": {}}, {}), folder=tmp_path), "judge")
    known = [number for numbers in parts for number in numbers]
    assert [place_of(side, number) for number in known] == [0, 1, 2, 3, 4]
    assert [place_of(side, number) for number in (-1, 6, 9**30)] == [0, 0, 0], "no such row"


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("column", [*sorted(added_names(MEASURED)), "rouge_l"])
def test_a_column_that_scoring_adds_is_not_shown_as_the_reference_or_the_prompt(tmp_path: Path, column: str, kept: bool) -> None:
    body = {"data": {"prompt": column, "reference": column}, "metrics": MEASURED[:2], "ownMetrics": MEASURED[2:]}
    asked: Any = {"prompt": "given", "system": "", "tools": None, "references": ("given",), "kept": {column: "given"} if kept else {}}
    answer = ScoredRow(0, output="said", reasoning="thought", values=dict.fromkeys(("exact_match", "mine"), 1.0))
    part = Columns.infer([asked], MEASURED).encode([asked], [answer], Sums())
    (tmp_path / "judge" / "parts").mkdir(parents=True)
    (tmp_path / "judge" / "parts" / "part-00000.parquet").write_bytes(part)
    record = make_record({"judge": {}}, {"tasks": [{"name": "judge", "score": body}]})

    (shown,) = rows_at([Side(replace(record, folder=tmp_path), "judge")], 0)

    assert (shown.prompt, shown.reference) == (("given", "given") if kept else ("", ""))
    assert ([str(each) for each in shown.outputs], shown.reasonings) == (["said"], ["thought"])


def test_rows_of_a_judge_show_the_answer_that_it_judged(tmp_path: Path) -> None:
    (tmp_path / "judge" / "parts").mkdir(parents=True)
    columns = {"row": [0], "prompt": ["Where is it?"], "input_output": ["In Rome."], "output": ["Right.\nScore: 5"], "error": [None]}
    pq.write_table(pa.table(columns), tmp_path / "judge" / "parts" / "part-00000.parquet")
    body = {"judge": {"rubric": "r"}, "data": {"from": "base"}}
    record = make_record({"judge": {}}, {"tasks": [{"name": "judge", "score": body}]})

    (row,) = rows_at([Side(replace(record, folder=tmp_path), "judge")], 0)

    assert (row.judged, [str(each) for each in row.outputs]) == (["In Rome."], ["Right.\nScore: 5"])
    kept = make_record({"judge": {"samples": [{"row": 0, "answer": "In Rome.", "output": "Score: 5"}]}}, dict(record.spec["spec"]))
    assert rows_at([Side(kept, "judge")], 0)[0].judged == ["In Rome."], "the samples of history too"


def test_rows_of_a_judge_of_two_show_the_other_answer(tmp_path: Path) -> None:
    outputs = {
        "base": {"row": [7, 9], "output": ["In Bonn.", "In Rome."]},
        "judge": {"row": [0, 1], "output": ["Verdict: A", "Verdict: B"]},
    }
    for name, columns in outputs.items():
        (tmp_path / name / "parts").mkdir(parents=True)
        pq.write_table(pa.table(columns), tmp_path / name / "parts" / "part-00000.parquet")
    body = {"judge": {"rubric": "r", "against": {"from": "base"}}, "data": {"from": "tuned"}}
    record = make_record({"judge": {}, "base": {}}, {"tasks": [{"name": "judge", "score": body}]})

    shown = rows_at([Side(replace(record, folder=tmp_path), "judge")], 0)

    assert [row.others for row in shown] == [["In Bonn."], ["In Rome."]], "by place, because the rows of base are a sample"
    kept = make_record({"judge": {"samples": [{"row": 0, "answer": "a", "against": "b"}]}}, dict(record.spec["spec"]))
    assert rows_at([Side(kept, "judge")], 0)[0].others == ["b"]


def test_reference_and_judged_answer_are_shown_as_the_judge_saw_them(tmp_path: Path) -> None:
    """Of a judge over an output whose data had a column `output` too: its own name is one `input_` longer."""
    body = {"data": {"prompt": "prompt", "reference": "input_output", "answer": "output"}, "judge": {"rubric": "Is it right?"}}
    kept = {"prompt": "?", "output": "<think>hm</think>Paris", "input_output": "<think>so</think>Rome"}
    asked: Any = {"prompt": "?", "system": "", "tools": None, "references": (), "kept": kept}
    part = Columns.infer([asked], ["judge"]).encode([asked], [ScoredRow(0, output="Score: 1", values={"judge": 1.0})], Sums())
    (tmp_path / "judge" / "parts").mkdir(parents=True)
    (tmp_path / "judge" / "parts" / "part-00000.parquet").write_bytes(part)
    record = make_record({"judge": {}}, {"tasks": [{"name": "judge", "score": body}]})

    (shown,) = rows_at([Side(replace(record, folder=tmp_path), "judge")], 0)

    assert (shown.reference, shown.judged) == ("Rome", ["Paris"])
