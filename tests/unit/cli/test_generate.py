"""`tuneyard generate` on the command line: prompts as arguments and as lines, and what it refuses before anything is loaded."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.builders.models import write_model

from tuneyard.cli import main


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a job whose task `train` has made whole weights from chats."""
    folder = tmp_path_factory.mktemp("out")
    write_model(folder / "train" / "model")
    (folder / "report.json").write_text(json.dumps({"job": "j", "status": "succeeded", "tasks": {"train": {"kind": "train"}}}))
    (folder / "train" / "result.json").write_text(json.dumps({"model_uri": "/gone/train/model"}))
    return folder


def test_arguments_and_lines_get_the_same_answers(out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["generate", str(out), "the cat", "red birds", "--max-tokens", "4"]) == 0
    said = capsys.readouterr()
    assert "train: whole weights; prompts become one message of a user" in said.err

    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nred birds\n"))
    assert main(["generate", str(out), "--max-tokens", "4"]) == 0
    assert capsys.readouterr().out == said.out


def test_what_is_wrong_is_said_with_a_next_step(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", str(tmp_path), "hello"]) == 2
    assert "next: give the folder of a finished `tuneyard run`" in capsys.readouterr().err
    assert main(["generate", str(out), "hello", "--task", "tune"]) == 2
    assert "it has train" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["generate", str(out)]) == 2
    assert "there is no prompt" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["runs/first", "./runs/first"])
def test_a_folder_that_is_not_there_is_told_before_the_hub(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("runs/frist", "runs/other"):
        (tmp_path / name).mkdir(parents=True)

    assert main(["generate", given, "hello"]) == 2

    error, step = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith(f"error: there is no folder {given}")
    assert ("the Hugging Face hub gives no model runs/first" in error) == (given == "runs/first")
    assert step.startswith(f"next: did you mean {'the folder ' if given == 'runs/first' else ''}runs/frist? If not, ")


@pytest.mark.parametrize("command", [["generate"], ["serve", "--port", "0"]])
def test_a_model_without_a_tokenizer_is_told_as_that(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(tmp_path / "bare")
    for path in tmp_path.glob("bare/tokenizer*"):
        path.unlink()

    assert main([command[0], str(tmp_path / "bare"), *(command[1:] or ["hello"])]) == 2

    error, step = capsys.readouterr().err.splitlines()[-2:]
    assert error == f"error: {tmp_path}/bare holds no tokenizer: there is no tokenizer.json, and no vocabulary"
    assert step.startswith("next: copy tokenizer.json and tokenizer_config.json of the model that it was made from into it")


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "-5"), ("--seed", "9" * 24), ("--temperature", "1e-320"), ("--temperature", "inf")]
)
def test_settings_that_no_sampler_takes_are_refused_before_anything_is_loaded(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(tmp_path), "the cat", option, value]) == 2
    assert option in capsys.readouterr().err
