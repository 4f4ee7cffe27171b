"""`tuneyard data inspect`: what a person sees before training."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tokenizer_of
from typer.testing import CliRunner

from tuneyard.api import BadInput
from tuneyard.cli import main
from tuneyard.cli.data.command import app
from tuneyard.data import inspect


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    answer = {"role": "assistant", "content": "say"}
    rows: list[dict[str, Any]] = [{"messages": [{"role": "user", "content": f"ask {i % 8}"}, answer], "id": i} for i in range(10)]
    lines = [json.dumps(row) for row in rows]
    lines[3] = lines[3][:20]
    lines[5] = json.dumps({"messages": rows[5]["messages"][:1], "id": 5})
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_what_is_found(chats: Path) -> None:
    found = inspect(str(chats))
    assert (found.format, found.why, found.samples, found.bad, found.complete) == ("chat", "columns messages", 8, 2, True)
    described = [(column.name, column.types, column.role) for column in found.columns]
    assert described == [("messages", ["list"], "messages"), ("id", ["int"], "")]
    assert [example.split(":")[1] for example in found.bad_examples] == ["4", "6"]
    assert found.duplicate_fraction == pytest.approx(2 / 8)
    assert found.characters is not None
    assert found.characters.max == len("user: ask 0\nassistant: say\n")
    assert [(piece.text, piece.loss) for piece in found.shown[0]] == [("user: ask 0\n", False), ("assistant: say\n", True)]


def test_only_the_first_rows(chats: Path) -> None:
    found = inspect(str(chats), limit=3)
    assert (found.samples, found.complete) == (3, False)


def test_columns_that_mean_nothing_are_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,score\n1,2\n")
    found = inspect(str(tmp_path / "a.csv"))
    assert found.format == "unknown"
    assert "columns found: id, score" in found.why
    assert [column.name for column in found.columns] == ["id", "score"]


def test_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(BadInput, match="the data set is empty"):
        inspect(str(tmp_path / "a.jsonl"))


def test_the_command_prints_a_table(chats: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(chats)])
    assert shown.exit_code == 0
    for words in ("chat  (columns messages)", "8 good, 2 bad", "25.0%", "chats.jsonl:6: no assistant turn", "«assistant: say"):
        assert words in shown.output.replace("\n", " ").replace("  ", " ").replace("  ", " ") or words in shown.output


def test_the_command_prints_json(chats: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(chats), "-o", "json"])
    assert json.loads(shown.stdout)["samples"] == 8


def test_a_file_in_latin_1_is_named_as_such_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,completion\n" + "süß,groß\n" * 3, encoding="latin-1")
    assert main(["data", "inspect", str(path)]) == 2
    shown = capsys.readouterr()
    assert "not UTF-8 (byte 0xfc)" in " ".join(shown.out.split())
    assert shown.err == (
        f"error: {path}: no row can be used; {path}:2: not UTF-8 (byte 0xfc)\n"
        f"next: convert it: iconv -f cp1252 -t utf-8 {path} > {tmp_path / 'a.utf-8.csv'}\n"
    )


QWEN_BASE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
PLAIN_ENDS = "{% for m in messages %}{{ '# ' + m['role'] + '\n' + m['content'] + '\n' }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "row", "expected"),
    [
        (QWEN_BASE, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "<|im_end|>"),
        (PLAIN_ENDS, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, ""),
        (QWEN_BASE, {"prompt": "q", "completion": "a"}, "<|endoftext|>"),
        (QWEN_BASE, {"text": "once"}, None),
    ],
)
def test_the_token_that_ends_answers_is_shown(tmp_path: Path, template: str, row: dict[str, Any], expected: str | None) -> None:
    tokenizer = tokenizer_of(["<|im_start|>", "<|im_end|>"], eos="<|endoftext|>", chat_template=template)
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    assert inspect(str(tmp_path / "a.jsonl"), tokenizer=tokenizer).ends_with == expected


def test_chats_that_the_template_refuses_are_bad_rows(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.content + eos_token }}{% endfor %}"
    )
    tokenizer = tokenizer_of([], eos="<|endoftext|>", chat_template=template)
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"messages": turns}, {"messages": [{"role": "system", "content": "s"}, *turns]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = inspect(str(tmp_path / "a.jsonl"), tokenizer=tokenizer)
    assert (found.samples, found.bad) == (1, 1)
    assert "the chat template refuses it: no system" in found.bad_examples[0]


def test_labels_of_kto_are_shown_and_false_ones_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"{i}+1?", "completion": str(i + i % 3), "label": i % 3 == 1} for i in range(9)]
    (tmp_path / "kto.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = inspect(str(tmp_path / "kto.jsonl"))
    assert (found.format, found.samples, found.left_out, found.bad) == ("prompt-completion", 3, 6, 0)
    assert main(["data", "inspect", str(tmp_path / "kto.jsonl")]) == 0
    assert "3 good, 6 labelled false, which training leaves out" in capsys.readouterr().out


def test_a_look_at_the_first_rows_says_so_once(chats: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", str(chats), "--limit", "3"]) == 0
    assert capsys.readouterr().out.count("of the first rows only") == 1
