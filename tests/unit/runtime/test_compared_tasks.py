"""Which score tasks of a job are compared, when, and where the comparison is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import JobSpec
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.score.comparing import changes_since_last_good, compare_finished, with_comparisons
from tuneyard.schedules import LastGood, why_not_compared
from tuneyard.storage import open_store
from tuneyard.tracking import Event, Report, Stage, Warned, comparable, write_report
from tuneyard.tracking.report_page import render

ROWS = 40


def job(*names: str, **changes: Any) -> JobSpec:
    score = {"model": {"name": "m"}, "data": {"source": "rows.jsonl", "reference": "answer"}, "metrics": ["exact_match"]} | changes
    tasks = [{"name": name, "score": score} for name in names]
    spec = {"tasks": tasks}
    return JobSpec.model_validate({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": spec})


def finish(folder: Path, name: str, says: str, answer: str = "a", rows: int = ROWS) -> None:
    data = write_rows(folder / f"rows-{answer}.jsonl", [{"prompt": f"<q>{i}", "answer": answer} for i in range(rows)])
    answer_all(request(folder, name, data), lambda _: says)
    JobOutput(str(folder)).finish(name, {"status": "succeeded"})


def compare(folder: Path, asked: JobSpec, task: str, *, anew: bool = True) -> list[Event]:
    seen: list[Event] = []
    compare_finished(asked, task, JobOutput(str(folder)), seen.append, anew=anew)
    return seen


def report(folder: Path, asked: JobSpec) -> Report:
    return with_comparisons(Report(job="j", status="succeeded", spec=asked.to_yaml_dict()), open_store(str(folder)))


@pytest.mark.parametrize("last", ["base", "tuned"])
def test_the_second_of_two_tasks_to_end_compares_them_in_the_order_of_the_file(tmp_path: Path, last: str) -> None:
    asked = job("base", "tuned")
    finish(tmp_path, "tuned", "a")
    assert compare(tmp_path, asked, "tuned") == []
    assert report(tmp_path, asked).comparisons == []

    finish(tmp_path, "base", "no")
    assert compare(tmp_path, asked, last) == [Stage(task=last, name="comparing tuned with base")]

    (comparison,) = report(tmp_path, asked).comparisons
    assert (comparison["task"], comparison["against"]) == ("tuned", "base")
    assert comparison["figures"][0]["real"] is True


def test_all_others_are_compared_with_the_first(tmp_path: Path) -> None:
    asked = job("base", "tuned", "other")
    for name in ("tuned", "other", "base"):
        finish(tmp_path, name, "a")
        compare(tmp_path, asked, name)

    assert [(each["task"], each["against"]) for each in report(tmp_path, asked).comparisons] == [("tuned", "base"), ("other", "base")]


def test_a_resumed_job_makes_a_comparison_that_a_kill_prevented_and_only_that(tmp_path: Path) -> None:
    asked = job("base", "tuned")
    for name in ("base", "tuned"):
        finish(tmp_path, name, "a")

    assert len(compare(tmp_path, asked, "tuned", anew=False)) == 1
    assert compare(tmp_path, asked, "tuned", anew=False) == []


def test_a_comparison_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    asked = job("base", "tuned")
    finish(tmp_path, "base", "a")
    finish(tmp_path, "tuned", "a", answer="b")

    _, warned = compare(tmp_path, asked, "tuned")

    assert isinstance(warned, Warned)
    assert warned.message.startswith("tuned is not compared with base: row 0 has another prompt or another reference")


def changes(folder: Path, last: Path, *, anew: bool = True) -> tuple[dict[str, Any], list[Event]]:
    seen: list[Event] = []
    asked = job("judge")
    asked.metadata.annotations.update(LastGood("nightly-1", str(last)).annotations)
    return changes_since_last_good(asked, "judge", JobOutput(str(folder)), seen.append, anew=anew), seen


def test_the_change_since_the_last_good_run_is_of_the_same_rows(tmp_path: Path) -> None:
    last, now = tmp_path / "last", tmp_path / "now"
    for folder, says in ((last, "a"), (now, "no")):
        folder.mkdir()
        finish(folder, "judge", says)
    found, _ = changes(now, last)
    assert found == {"changes": {"exact_match": {"change": -1.0, "low": -1.0, "high": -1.0, "rows": ROWS}}}
    assert changes(now, last, anew=False) == (found, []), "a resumed job reads what it has found"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"answer": "b"}, "row 0 has another prompt or another reference"),
        ({"rows": ROWS + 1}, "40 rows were scored, and 41 in that run"),
        (None, "last/judge"),
    ],
)
def test_rows_of_the_last_good_run_that_are_others_or_gone_are_a_warning(tmp_path: Path, other: dict[str, Any] | None, why: str) -> None:
    last, now = tmp_path / "last", tmp_path / "now"
    for folder in (last, now):
        folder.mkdir()
    if other is not None:
        finish(last, "judge", "a", **other)
    finish(now, "judge", "a")
    found, seen = changes(now, last)
    assert isinstance(seen[-1], Warned)
    assert seen[-1].message.startswith("the rows of judge are not compared with those of nightly-1: ")
    assert why in seen[-1].message
    assert why in found["rows_not_compared"]
    assert why in why_not_compared({"judge": found}), "the status of the run has it too"


@pytest.mark.parametrize(
    "plan",
    [
        "[]",
        "null",
        "{",
        "[" * 100_000,
        {"settings": None, "version": 99},
        {"settings": None},
        {"rowsPerPart": 0},
        {"settings": {"generation": {}, "rows": ROWS, "metrics": None}},
    ],
    ids=lambda plan: str(plan)[:30],
)
def test_a_damaged_plan_of_another_output_never_fails_a_task(tmp_path: Path, plan: Any) -> None:
    last, now = tmp_path / "last", tmp_path / "now"
    for folder in (last, now):
        folder.mkdir()
        finish(folder, "judge", "a")
    place = last / "judge" / "plan.json"
    place.write_text(plan if isinstance(plan, str) else json.dumps(json.loads(place.read_text()) | plan))

    found, seen = changes(now, last)

    assert set(found) == {"rows_not_compared"}
    assert isinstance(seen[-1], Warned)
    assert "another version" in seen[-1].message if "99" in str(plan) else f"{place} is damaged" in seen[-1].message


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("exact_match", [[1.0]], "column exact_match holds no numbers"),
        ("exact_match", ["x"], "part-00000.parquet is damaged: column exact_match holds no numbers"),
        ("row", ["x"], "column row holds no numbers"),
        ("row", [1], "its rows are not in order"),
        ("exact_match", None, "it has no column exact_match"),
    ],
)
def test_damaged_columns_of_another_output_never_fail_a_task(tmp_path: Path, column: str, values: list[Any] | None, why: str) -> None:
    asked = job("base", "tuned")
    for name in ("base", "tuned"):
        finish(tmp_path, name, "a")
    part = tmp_path / "base" / "parts" / "part-00000.parquet"
    table = pq.read_table(part)
    place, kept = table.column_names.index(column), table.drop_columns([column])
    pq.write_table(kept if values is None else kept.add_column(place, column, [values * table.num_rows]), part)

    _, warned = compare(tmp_path, asked, "tuned")

    assert isinstance(warned, Warned)
    assert why in warned.message


def test_a_damaged_part_is_a_warning(tmp_path: Path) -> None:
    asked = job("base", "tuned")
    for name in ("base", "tuned"):
        finish(tmp_path, name, "a")
    (tmp_path / "base" / "parts" / "part-00000.parquet").write_bytes(b"PAR1")

    _, warned = compare(tmp_path, asked, "tuned")

    assert isinstance(warned, Warned)


def test_tasks_without_metrics_are_left_alone(tmp_path: Path) -> None:
    asked = job("base", "tuned", metrics=[])
    for name in ("base", "tuned"):
        finish(tmp_path, name, "a")

    assert compare(tmp_path, asked, "tuned") == []


def test_the_report_shows_both_answers_and_escapes_them(tmp_path: Path) -> None:
    asked = job("base", "tuned")
    finish(tmp_path, "base", "<script>alert(1)</script>")
    finish(tmp_path, "tuned", "a")
    compare(tmp_path, asked, "tuned")
    whole = report(tmp_path, asked)

    page = render(whole)
    write_report(open_store(str(tmp_path)), whole)

    assert "tuned against base" in page
    assert ">better</td>" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
    assert len(json.loads((tmp_path / "report.json").read_text())["comparisons"]) == 1


def test_tasks_on_the_same_data_with_the_same_answers_and_judges_of_them_are_one_group() -> None:
    def scored(name: str, **score: Any) -> dict[str, Any]:
        return {"name": name, "score": score}

    def judged(name: str, of: str, rubric: str = "r") -> dict[str, Any]:
        return scored(name, judge={"rubric": rubric}, data={"from": of, "prompt": "q"})

    rows = {"source": "d", "prompt": "q"}
    tasks = [
        scored("base", data=rows),
        scored("tuned", data=rows),
        scored("elsewhere", data={"source": "e", "prompt": "q"}),
        scored("boxed", data=rows, answer="boxed"),
        scored("also-boxed", data=rows, answer="boxed", ignore=[]),
        judged("of-base", "base"),
        judged("of-tuned", "tuned"),
        judged("of-elsewhere", "elsewhere"),
        judged("by-another-rubric", "tuned", "s"),
    ]

    groups = comparable({"spec": {"tasks": tasks}}, [task["name"] for task in tasks])

    assert groups == [
        ["base", "tuned"],
        ["elsewhere"],
        ["boxed", "also-boxed"],
        ["of-base", "of-tuned"],
        ["of-elsewhere"],
        ["by-another-rubric"],
    ]
