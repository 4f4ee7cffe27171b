"""`tuneyard init`: data of every format, and of none, becomes a JobSpec that validates, or a sentence that says why not."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneyard.api import TrainTask, load_jobspec
from tuneyard.cli import main
from tuneyard.cli.init.proposal import propose
from tuneyard.cli.init.reading import Reading
from tuneyard.data import Inspection, inspect
from tuneyard.data.inspection import Lengths

CHAT = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]}
PAIR = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
ROWS: dict[str, Mapping[str, Any]] = {
    "chat": CHAT,
    "prompt-completion": {"question": "2 + 2?", "answer": "4"},
    "preference": PAIR,
    "text": {"text": "Once upon a time there was a number."},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, row: Mapping[str, Any], count: int = 200) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for _ in range(count)))


def trained(file: Path) -> TrainTask:
    found = load_jobspec(file).spec.tasks[0].train
    assert found is not None
    return found


@pytest.mark.parametrize(("format", "objective"), [("chat", "sft"), ("prompt-completion", "sft"), ("preference", "dpo"), ("text", "clm")])
def test_each_format_has_its_objective_and_validates(here: Path, format: str, objective: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "my data.jsonl", ROWS[format])
    assert main(["init"]) == 0, "the one data file of the folder is taken"
    shown = capsys.readouterr()
    assert shown.out == "job.yaml\n"
    assert f"my data.jsonl: {format}, 200 samples" in shown.err
    assert "next: tuneyard plan job.yaml" in shown.err
    train = trained(here / "job.yaml")
    assert (train.data.source, train.data.format, train.objective) == ("my data.jsonl", format, objective)
    assert load_jobspec(here / "job.yaml").metadata.name == "my-data"
    assert main(["validate", "job.yaml"]) == 0


def test_the_file_names_data_and_model_from_where_it_lies(here: Path) -> None:
    (here / "jobs").mkdir()
    (here / "tiny").mkdir()
    write(here / "chats.jsonl", CHAT)
    assert main(["init", "--data", "chats.jsonl", "--model", "tiny", "--out", "jobs/first.yaml"]) == 0
    train = trained(here / "jobs" / "first.yaml")
    assert (train.data.source, train.model.name) == ("../chats.jsonl", "../tiny")


def test_next_steps_can_be_copied_whatever_files_are_called(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "-Größe Frage.jsonl", CHAT)
    assert main(["init", "--data", "./-Größe Frage.jsonl", "--out=-j ö.yaml"]) == 0
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "next: tuneyard plan './-j ö.yaml', then tuneyard run './-j ö.yaml' (or tuneyard submit './-j ö.yaml')"

    for copied in ("./-j ö.yaml", "--"):
        assert main(["validate", copied, *(["-j ö.yaml"] if copied == "--" else [])]) == 0
    assert main(["validate", "-j ö.yaml"]) == 2
    assert capsys.readouterr().err.endswith("next: a file of this name is written with its folder: tuneyard validate './-j ö.yaml'\n")


def test_columns_are_said_where_they_cannot_be_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tickets.csv").write_text("title,remark\n" + "a printer,is on fire\n" * 200)
    assert main(["init"]) == 2
    shown = capsys.readouterr().err
    assert "columns found: title, remark" in shown
    assert "next: say which column plays which part: tuneyard init --data tickets.csv --columns prompt=…,completion=…" in shown
    assert main(["init", "--columns", "prompt=title,completion=remark"]) == 0
    assert trained(here / "job.yaml").data.columns == {"prompt": "title", "completion": "remark"}


def test_rows_that_cannot_be_used_are_told_and_tolerated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = f"{json.dumps(CHAT)}\n", "{broken\n"
    (here / "chats.jsonl").write_text(good * 95 + bad * 5)
    assert main(["init"]) == 0
    assert "5 of 100 rows cannot be used" in capsys.readouterr().err
    assert trained(here / "job.yaml").data.max_bad_fraction >= 0.05


def test_a_tenth_of_bad_rows_is_written_at_most(here: Path) -> None:
    (here / "chats.jsonl").write_text(f"{json.dumps(CHAT)}\n" * 91 + "{broken\n" * 9)
    assert main(["init"]) == 0
    assert trained(here / "job.yaml").data.max_bad_fraction == 0.1


def test_more_bad_rows_than_a_tenth_are_to_be_repaired_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"what is {number},it is {number}" for number in range(300)]
    rows[100] = '"' + rows[100]
    (here / "faq.csv").write_text("\n".join(["question,reply", *rows]) + "\n")
    assert main(["init"]) == 2
    shown = capsys.readouterr().err
    assert "200 of 300 rows cannot be used, such as faq.csv:102: not CSV: unexpected end of data" in shown
    assert "next: close the quotation mark" in shown
    assert not (here / "job.yaml").exists()


@pytest.mark.parametrize("empty", [100, 300])
def test_pairs_without_a_question_count_as_the_chats_that_they_become(empty: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [{"question": "" if number < empty else "2 + 2?", "answer": f"it is {number}"} for number in range(300)]
    (here / "faq.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    assert main(["init"]) == 2
    assert "the prompt is empty, and a chat needs a question" in capsys.readouterr().err
    assert not (here / "job.yaml").exists()


@pytest.mark.parametrize(
    ("names", "argv", "cause", "next_step"),
    [
        ([], [], "no file here is data", "tuneyard init --data FILE"),
        (["a.jsonl", "b.csv.gz"], [], "several files here may be the data: a.jsonl, b.csv.gz", "tuneyard init --data a.jsonl"),
        (["a.jsonl", "job.yaml"], [], "job.yaml is there already", "--force"),
        (["a.jsonl"], ["--out", "no/job.yaml"], "there is no folder no", "give a file in a folder that exists"),
        (["a.jsonl"], ["--data", "c.jsonl"], "c.jsonl: no such file", "did you mean a.jsonl?"),
        (["a.jsonl"], ["--columns", "prompt"], "--columns prompt is not ROLE=COLUMN", "prompt=question"),
        (["a.jsonl"], ["--columns", "prompt=x,completion=y"], "x", "columns"),
        (["a.jsonl"], ["--model", ""], "--model names no model", "leave it out"),
    ],
)
def test_what_cannot_be_written_is_refused(
    here: Path, names: Sequence[str], argv: Sequence[str], cause: str, next_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        write(here / name, CHAT)
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    assert main(["init", *argv]) == 2
    shown = capsys.readouterr().err
    assert "bug in" not in shown
    assert cause in shown.partition("\nnext: ")[0]
    assert next_step in shown.partition("\nnext: ")[2]
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_a_file_is_written_over_when_asked(here: Path) -> None:
    write(here / "chats.jsonl", CHAT)
    (here / "job.yaml").write_text("old")
    assert main(["init", "--force"]) == 0
    assert trained(here / "job.yaml").data.source == "chats.jsonl"


@pytest.mark.parametrize(
    ("samples", "characters", "batch", "epochs", "pack"),
    [
        (5, 100, 4, 25, False),
        (60, 100, 4, 10, False),
        (300, 100, 4, 5, False),
        (480, 100, 4, 3, False),
        (900, 100, 8, 3, False),
        (8_000, 100, 32, 2, False),
        (100_000, 300, 32, 1, True),
    ],
)
def test_little_data_gets_small_batches_and_several_epochs(
    samples: int, characters: int, batch: int, epochs: int, pack: bool, looked_at: Callable[..., Inspection]
) -> None:
    found = propose(looked_at(samples, characters), source="chats.jsonl", model=None, reading=Reading())
    assert (found.batch, found.epochs, found.pack) == (batch, epochs, pack)


@pytest.mark.parametrize(("format", "epochs"), [("chat", 4), ("prompt-completion", 4), ("preference", 2), ("text", 25)])
def test_answers_are_learned_in_more_steps_than_pairs_and_text(format: str, epochs: int, here: Path) -> None:
    write(here / "rows.jsonl", ROWS[format], 360)
    assert main(["init"]) == 0
    train = trained(here / "job.yaml")
    assert (train.batch.rows, train.epochs) == (4, epochs)


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (None, 2e-4),
        ({"hidden_size": 4096}, 2e-4),
        ({"n_embd": 8192}, 1.2e-4),
        ({"hidden_size": 128, "model_type": "llama"}, 3e-3),
        ({"hidden_size": 896, "model_type": "qwen2"}, 2.3e-4),
    ],
)
def test_a_wider_model_gets_a_smaller_learning_rate(
    config: Mapping[str, Any] | None, rate: float, looked_at: Callable[..., Inspection]
) -> None:
    found = propose(looked_at(500, 100), source="chats.jsonl", model=None, reading=Reading(), config=config)
    assert found.learning_rate == rate
    assert ("hidden size" in found.text()) is (config is not None)


def test_the_width_is_that_of_the_model(here: Path) -> None:
    write(here / "chats.jsonl", CHAT)
    (here / "tiny").mkdir()
    (here / "tiny" / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 64}}))
    rates = []
    for model in ("tiny", "Qwen/Qwen2.5-0.5B-Instruct", "nobody/knows-it"):
        assert main(["init", "--model", model, "--force"]) == 0
        rates.append(trained(here / "job.yaml").optimizer.learning_rate)
    assert rates == [5.1e-3, 2.3e-4, 2e-4]


def test_a_system_text_beside_pairs_is_a_part_of_their_chats(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "orders.jsonl", {"system": "Write JSON.", "prompt": "2 cups", "response": '{"cups": 2}'})
    assert main(["init"]) == 0
    shown = capsys.readouterr().err
    assert "columns prompt, completion = response, system" in shown
    assert "not used" not in shown
    assert trained(here / "job.yaml").data.chat


@pytest.fixture
def looked_at(tmp_path: Path) -> Callable[..., Inspection]:
    from dataclasses import replace

    write(tmp_path / "chats.jsonl", CHAT, 5)
    found = inspect(str(tmp_path / "chats.jsonl"))
    return lambda samples, length: replace(found, samples=samples, characters=Lengths(length, length, length, length))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    source=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30),
    model=st.text(string.printable, min_size=1, max_size=20),
    column=st.text(string.printable, min_size=1, max_size=10),
)
def test_whatever_things_are_called_the_file_says_it(
    tmp_path: Path, looked_at: Callable[..., Inspection], source: str, model: str, column: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        propose(looked_at(300, 100), source=source, model=model, reading=Reading({"messages": column})).text(), encoding="utf-8"
    )
    train = trained(file)
    assert (train.data.source, train.model.name, train.data.columns) == (source, model, {"messages": column})


def test_a_file_in_latin_1_is_to_be_converted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.csv").write_text("prompt,completion\n" + "süß,groß\n" * 3, encoding="latin-1")
    assert main(["init"]) == 2
    assert capsys.readouterr().err == (
        "error: a.csv: no row can be read; a.csv:2: not UTF-8 (byte 0xfc)\nnext: convert it: iconv -f cp1252 -t utf-8 a.csv > a.utf-8.csv\n"
    )
