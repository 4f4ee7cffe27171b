"""Rows to score: any range at any time, bad rows as errors, the same numbers whatever the type."""

import csv
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tuneyard.api import BadInput, ScoreData
from tuneyard.data import ScoreRows

ROWS: list[dict[str, Any]] = [{"prompt": f"question {i}", "answer": str(i)} for i in range(300)]


def as_jsonl(folder: Path) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder / "rows.jsonl"


def as_parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def as_csv(folder: Path) -> Path:
    with (folder / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["prompt", "answer"])
        writer.writeheader()
        writer.writerows(ROWS)
    return folder / "rows.csv"


def as_gzip(folder: Path) -> Path:
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(as_jsonl(folder).read_bytes()))
    return folder / "rows.jsonl.gz"


def as_two_files(folder: Path) -> Path:
    (folder / "parts").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS[:130]), folder / "parts" / "a.parquet", row_group_size=50)
    pq.write_table(pa.Table.from_pylist(ROWS[130:]), folder / "parts" / "b.parquet")
    return folder / "parts"


@pytest.mark.parametrize("make", [as_jsonl, as_parquet, as_csv, as_gzip, as_two_files])
def test_any_range_of_any_type(tmp_path: Path, make: Any) -> None:
    rows = ScoreRows.open(ScoreData(source=str(make(tmp_path)), reference="answer"), cache_dir=tmp_path / "cache")
    assert rows.count() == 300
    for start, stop in [(0, 300), (0, 1), (69, 71), (128, 132), (299, 300), (290, 999), (5, 5)]:
        assert [(r["index"], r["prompt"], r["references"]) for r in rows.read(start, stop)] == [
            (i, f"question {i}", (str(i),)) for i in range(start, min(stop, 300))
        ]


def test_rows_cross_processes(tmp_path: Path) -> None:
    rows = ScoreRows.open(ScoreData(source=str(as_jsonl(tmp_path))))
    assert pickle.loads(pickle.dumps(rows)).read(64, 66) == rows.read(64, 66)


def test_a_limit_ends_early(tmp_path: Path) -> None:
    rows = ScoreRows.open(ScoreData(source=str(as_parquet(tmp_path)), limit=10))
    assert rows.count() == len(rows.read(0, 300)) == 10


def test_kept_columns(tmp_path: Path) -> None:
    path = str(as_jsonl(tmp_path))
    assert ScoreRows.open(ScoreData(source=path)).read(7, 8)[0]["kept"] == ROWS[7]
    assert ScoreRows.open(ScoreData(source=path, keep=["answer"])).read(7, 8)[0]["kept"] == {"answer": "7"}


def test_a_prompt_may_be_a_chat(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": [{"from": "human", "value": "hi"}]}) + "\n")
    assert ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl"))).read(0, 1)[0]["prompt"] == [{"role": "user", "content": "hi"}]


def test_bad_rows_are_rows_with_an_error(tmp_path: Path) -> None:
    lines = [
        '{"prompt": "a", "answer": "1"}',
        '{"prompt": ',
        '{"prompt": "", "answer": "1"}',
        '{"prompt": "b"}',
        '{"prompt": 5, "answer": "1"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl"), reference="answer")).read(0, 10)
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["error"] is None
    assert "not JSON" in str(rows[1]["error"])
    assert [row["error"] for row in rows[2:]] == ["prompt is empty", None, "prompt is int, not a list of messages"]


def test_a_row_without_a_reference_is_generated_for(tmp_path: Path) -> None:
    answers = ['"1"', "null", "NaN", "[]", '""']
    (tmp_path / "a.jsonl").write_text("".join(f'{{"prompt": "a", "answer": {answer}}}\n' for answer in answers) + '{"prompt": "a"}\n')

    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl"), reference="answer")).read(0, 10)

    assert [(row["references"], row["error"]) for row in rows] == [(("1",), None), *[((), None)] * 3, (("",), None), ((), None)]


def test_a_row_may_have_several_references(tmp_path: Path) -> None:
    answers = [["4", "four"], [4, 4.5], ["4", None], [["4"]], {"a": 1}]
    pairs = [{"prompt": "2 + 2", "answer": answer} for answer in answers]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))

    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl"), reference="answer")).read(0, 10)

    assert [row["references"] for row in rows[:2]] == [("4", "four"), ("4", "4.5")]
    assert [row["error"] for row in rows[2:]] == [
        "answer[1] is NoneType, not text",
        "answer[0] is list, not text",
        "answer is dict, an object with the parts a, not text",
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_character_that_was_cut_in_two_is_an_error_of_its_row_alone(tmp_path: Path, name: str) -> None:
    rows = ['{"prompt": "caf\\u00e9 \\ud83d\\ude00", "answer": "1"}', '{"prompt": "cut \\ud83d", "answer": "1"}']
    (tmp_path / name).write_text("\n".join(rows) if name.endswith("l") else f"[{','.join(rows)}]")

    whole, cut = ScoreRows.open(ScoreData(source=str(tmp_path / name), reference="answer"), cache_dir=tmp_path / "cache").read(0, 2)

    assert (whole["prompt"], whole["error"]) == ("café 😀", None)
    assert "half of a surrogate pair" in str(cut["error"])


def test_a_bad_csv_row_of_several_lines_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,answer\na,1\nb,"2\n\n2",3\nc,3\n')
    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.csv")), cache_dir=tmp_path / "cache")
    assert rows.count() == 3
    first, bad, last = rows.read(0, 3)
    assert "a.csv:3: 3 fields where the header has 2" in str(bad["error"])
    assert (first["prompt"], last["prompt"]) == ("a", "c")


def test_bad_csv_rows_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,answer\na,1\nb\nc,3\n")
    rows = ScoreRows.open(ScoreData(source=str(tmp_path / "a.csv")), cache_dir=tmp_path / "cache").read(0, 3)
    assert [row["prompt"] for row in rows] == ["a", "", "c"]
    assert "a.csv:3: 1 fields where the header has 2" in str(rows[1]["error"])


def test_a_missing_column_lists_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column reply \(data.reference\); columns found: prompt, answer"):
        ScoreRows.open(ScoreData(source=str(as_jsonl(tmp_path)), reference="reply"))


def test_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.raises(BadInput, match="the data set is empty"):
        ScoreRows.open(ScoreData(source=str(tmp_path / "a.jsonl")))


def test_nulls_in_prompts_are_fillers_in_columnar_files_alone(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1, "b": None}}}
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "r"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": turns}) + "\n")
    pq.write_table(pa.Table.from_pylist([{"prompt": turns}]), tmp_path / "a.parquet")

    found = [ScoreRows.open(ScoreData(source=str(tmp_path / name))).read(0, 1)[0]["prompt"] for name in ("a.jsonl", "a.parquet")]

    arguments = [prompt[1]["tool_calls"][0]["function"]["arguments"] for prompt in found if isinstance(prompt, list)]
    assert arguments == [{"a": 1, "b": None}, {"a": 1}]


def test_columns_that_training_uses_stand_beside_the_prompt(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    rows = [
        {"instruction": "Add", "input": "2 2", "output": "4", "System_Prompt": "be brief", "tools": json.dumps([tool])},
        {"instruction": "Sing", "input": "", "output": "la", "System_Prompt": None, "tools": None},
        {"instruction": "Run", "input": None, "output": "", "System_Prompt": "", "tools": "{broken"},
    ]
    (tmp_path / "alpaca.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    data = ScoreData(source=str(tmp_path / "alpaca.jsonl"), prompt="instruction", reference="output")
    first, second, third = ScoreRows.open(data).read(0, 3)

    assert (first["prompt"], first["system"], first["tools"]) == ("Add\n\n2 2", "be brief", [tool])
    assert (second["prompt"], second["system"], second["tools"]) == ("Sing", "", None)
    assert third["error"] is not None
    assert "tools" in third["error"]


def test_an_input_beside_another_prompt_is_a_column_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "2 + 2?", "input": "x"}\n')
    (row,) = ScoreRows.open(ScoreData(source=str(tmp_path / "rows.jsonl"), prompt="question")).read(0, 1)
    assert row["prompt"] == "2 + 2?"
