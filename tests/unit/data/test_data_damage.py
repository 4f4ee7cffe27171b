"""Files whose cells, quotes, offsets or cached tokens are damaged: a bad row, a refusal in words, or made again; never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import tokenizer_of

from tuneyard.api import BadInput, TrainData
from tuneyard.data import prepare
from tuneyard.data.file_types import DataFile, FoundFile
from tuneyard.data.prompt_form import prompts_are_chats
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.score_rows import ScoreRows

CHAT = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
QUESTION, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
CUT_CALL = {"name": "f", "arguments": '{"a": "\\ud83d"}'}
TEXTS = {"prompt": ["one", "two", "three"], "completion": ["yes", "no", "yes"]}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(["<|user|>", "<|assistant|>"], eos="<|end|>", chat_template=CHAT)


def records(path: Path, kind: Any) -> list[Record | BadRow]:
    return list(read_records([DataFile(FoundFile(str(path), str(path), path.stat().st_size), kind)]))


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({**TEXTS, **columns}), path)
    return path


@pytest.mark.parametrize(
    "column",
    [
        pa.array([10**15, 1, 2], pa.timestamp("s")),
        pa.array([12, 1, 2], pa.timestamp("us", tz="Nowhere/Land")),
        pa.array([10**9, 1, 2], pa.date32()),
        pa.array([10**17, 1, 2], pa.duration("ms")),
    ],
    ids=["year 31 million", "no such time zone", "a date", "a duration"],
)
def test_a_cell_that_python_cannot_hold_is_missing(column: Any, tmp_path: Path) -> None:
    found = records(parquet(tmp_path / "a.parquet", t=column), "parquet")
    assert [(type(row), row.values["prompt"]) for row in found if isinstance(row, Record)] == [(Record, text) for text in TEXTS["prompt"]]
    assert isinstance(found[0], Record)
    assert found[0].values["t"] is None


def test_text_that_is_not_utf_8_is_a_bad_row_for_training_and_scoring(tmp_path: Path) -> None:
    offsets, content = pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0])), pa.py_buffer(b"q1\xff\xfeq3")
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, content])
    path = parquet(tmp_path / "a.parquet", prompt=broken)
    first, second, third = records(path, "parquet")
    assert isinstance(first, Record)
    assert isinstance(third, Record)
    assert isinstance(second, BadRow)
    assert second.reason == "column prompt is not UTF-8: invalid start byte at byte 1 of the text"
    from tuneyard.api import ScoreData

    rows = ScoreRows.open(ScoreData(source=str(path), prompt="prompt")).read(0, 3)
    assert [row["error"] is None for row in rows] == [True, False, True]


def test_offsets_that_point_out_of_an_arrow_file_are_refused(tmp_path: Path) -> None:
    """Reading them ends the process by a signal."""
    path, table = tmp_path / "a.arrow", pa.table({"prompt": ["q1", "q2", "q3"], "completion": ["yes", "no", "yes"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = bytearray(path.read_bytes())
    at = content.find(b"\2\0\0\0\4\0\0\0\6\0\0\0")
    content[at : at + 4] = (2**30).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not a complete Arrow file"):
        records(path, "arrow")


def test_a_local_parquet_file_that_is_damaged_has_nothing_to_do_with_the_network(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    content[-8 - footer : -footer] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not a complete Parquet file"):
        records(path, "parquet")


def csv(path: Path, *, opened: int, closed: int | None = None, rows: int = 1000) -> Path:
    lines = [f"q{n},yes {n}" for n in range(rows)]
    lines[opened] = f'q{opened},"yes {opened}'
    if closed is not None:
        lines[closed] = f'q{closed},{closed}"'
    path.write_text("prompt,completion\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("opened", "closed", "bad"), [(500, None, 500), (100, 900, 801)])
def test_lines_that_a_stray_quote_swallows_are_bad_rows(opened: int, closed: int | None, bad: int, tmp_path: Path, tokenizer: Any) -> None:
    path = csv(tmp_path / "a.csv", opened=opened, closed=closed)
    found = records(path, "csv")
    assert sum(row.count for row in found if isinstance(row, BadRow)) == bad
    assert sum(isinstance(row, Record) for row in found) == 1000 - bad
    (fault,) = (row for row in found if isinstance(row, BadRow))
    assert fault.place == f"{path}:{opened + 2}"
    assert "quotation mark" in fault.advice
    with pytest.raises(BadInput, match=f"{bad} of 1000 rows are bad"):
        prepare(TrainData(source=str(path)), tokenizer, objective="sft", seed=0, cache_dir=tmp_path)


def test_texts_of_many_lines_are_no_swallowed_rows(tmp_path: Path) -> None:
    text = "def f(x, y):\n    return x\n\nfor a, b in c:\n    print(a, b)\n    f(a)\n\nprint(1, 2, 3)\nend\n"
    path = tmp_path / "a.csv"
    path.write_text(f'prompt,completion\nq,"{text}"\n"{text}",a\n')
    assert [row.values for row in records(path, "csv") if isinstance(row, Record)] == [
        {"prompt": "q", "completion": text},
        {"prompt": text, "completion": "a"},
    ]


def test_headers_that_a_spreadsheet_left_empty_are_no_columns_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,completion,,\nq,yes,,\n")
    (row,) = records(path, "csv")
    assert isinstance(row, Record)
    assert row.values == {"prompt": "q", "completion": "yes", "column 3": "", "column 4": ""}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps({"messages": json.dumps([QUESTION | {"content": "\ud83d"}, ANSWER])}), "surrogate"),
        (json.dumps({"messages": [QUESTION, {"role": "assistant", "tool_calls": [CUT_CALL]}]}), "surrogate"),
        ('{"messages": ' + "9" * 5000 + "}", "a number of more than 4,300 digits"),
        ('[{"messages": []}]', "a row must be an object, this is a list"),
    ],
    ids=["messages", "arguments", "a long number", "an array"],
)
def test_json_inside_of_rows(line: str, reason: str, tmp_path: Path, tokenizer: Any) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    path = tmp_path / "a.jsonl"
    path.write_text(f"{good}\n{good}\n{line}\n")
    report = prepare(TrainData(source=str(path), max_bad_fraction=0.5), tokenizer, objective="sft", seed=0, cache_dir=tmp_path).report
    assert (report.samples, report.bad) == (2, 1)
    assert reason in report.bad_examples[0]


def test_text_that_only_looks_like_json_is_text(tmp_path: Path, tokenizer: Any) -> None:
    rows = [{"prompt": '[{"a":' * 5000, "completion": "yes"}, {"prompt": "q", "completion": "no"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = TrainData(source=str(path), max_length=100_000)
    assert prepare(spec, tokenizer, objective="sft", seed=0, cache_dir=tmp_path).report.samples == 2


@pytest.mark.parametrize("first", ["text", "messages"])
def test_rows_of_another_kind_than_the_first_are_bad_rows(first: str, tmp_path: Path, tokenizer: Any) -> None:
    texts = {"prompt": "q", "completion": "yes"}
    messages = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "yes"}]}
    rows = [texts] * 150 + [messages] if first == "text" else [messages] * 150 + [texts]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = prepare(TrainData(source=str(path)), tokenizer, objective="sft", seed=0, cache_dir=tmp_path).report
    assert (report.samples, report.bad) == (150, 1)
    assert "in the first rows" in report.bad_examples[0]


@pytest.mark.parametrize("name", ["train.arrow", "report.json"])
@pytest.mark.parametrize("damage", ["zeros", "one byte"])
def test_cached_tokens_that_were_damaged_are_made_again(name: str, damage: str, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q {n}", "completion": f"a {n}"}) + "\n" for n in range(20)))

    def prepared() -> Any:
        return prepare(TrainData(source=str(path)), tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")

    good = list(prepared().train)
    assert prepared().cached
    (file,) = (tmp_path / "cache" / "tokens").glob(f"*/{name}")
    content = bytearray(file.read_bytes())
    content = bytearray(len(content)) if damage == "zeros" else content
    content[len(content) // 2] ^= 0x7F
    file.write_bytes(content)
    again = prepared()
    assert not again.cached
    assert list(again.train) == good


def test_another_text_in_the_file_of_the_template_is_prepared_anew(tmp_path: Path, tokenizer: Any) -> None:
    rows, template = tmp_path / "chats.jsonl", tmp_path / "chat.jinja"
    rows.write_text(json.dumps({"messages": [QUESTION, ANSWER]}) + "\n")
    spec = TrainData(source=str(rows), chat_template=str(template))
    lengths = []
    for text in (CHAT, CHAT, CHAT.replace("<|end|>", "<|end|><|end|>")):
        template.write_text(text)
        made = prepare(spec, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
        lengths.append((len(next(iter(made.train))["input_ids"]), made.cached))
    assert [cached for _, cached in lengths] == [False, True, False]
    assert lengths[2][0] > lengths[1][0] == lengths[0][0]


def test_a_form_of_prompts_that_nobody_knows_is_refused(tokenizer: Any) -> None:
    for form in ("PLAIN", "plain ", 5, {}):
        tokenizer.init_kwargs["tuneyard_prompts"] = form
        try:
            with pytest.raises(BadInput, match="tuneyard_prompts is"):
                prompts_are_chats(tokenizer)
        finally:
            del tokenizer.init_kwargs["tuneyard_prompts"]
