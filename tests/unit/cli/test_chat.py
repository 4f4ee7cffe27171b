"""`tuneyard chat` through a pipe: turns, history, commands, and a model with its base."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.models import write_adapter, write_model

from tuneyard.cli import main

ASKED = ["the cat sat", "red birds sang"]
Chat = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter"), model)


@pytest.fixture
def chat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Exit code, lines of stdout, and stderr of a chat with these lines."""

    def of(model: Path, *lines: str, options: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["chat", str(model), "--max-tokens", "4", *options])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return of


def generated(capsys: pytest.CaptureFixture[str], model: Path, *prompts: str) -> list[str]:
    assert main(["generate", str(model), *prompts, "--max-tokens", "4"]) == 0
    return capsys.readouterr().out.splitlines()


def test_turns_follow_each_other_until_a_reset(chat: Chat, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = generated(capsys, model, *ASKED)

    code, lines, said = chat(model, *ASKED, "/reset", ASKED[1])

    assert code == 0
    assert (lines[0], lines[2]) == (first, second)
    assert lines[1] != second, "the second turn has seen the first"
    assert "whole weights" in said


def test_the_base_answers_without_the_adapter(chat: Chat, model: Path, adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (base,), (tuned,) = generated(capsys, model, ASKED[0]), generated(capsys, adapter, ASKED[0])

    code, lines, _ = chat(adapter, ASKED[0], "/base", "/reset", ASKED[0], "/compare", "/reset", ASKED[0], "/tuned", "/quit", ASKED[0])

    assert (code, base != tuned) == (0, True)
    assert lines == [tuned, base, f"[tuned] {tuned}", f"[base] {base}"]


def test_the_base_of_whole_weights_is_loaded_when_it_is_asked_for(
    chat: Chat, model: Path, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's own output stands for that of a training."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), adapter).merge_and_unload()
    shutil.copytree(model, tmp_path / "train" / "model")
    merged.save_pretrained(tmp_path / "train" / "model")
    (tmp_path / "report.json").write_text(json.dumps({"job": "j", "status": "succeeded", "tasks": {"train": {"kind": "train"}}}))
    (tmp_path / "train" / "result.json").write_text(json.dumps({"model_uri": "x", "base_model_uri": str(model)}))
    (base,) = generated(capsys, model, ASKED[0])

    code, lines, _ = chat(tmp_path, ASKED[0], "/base", "/reset", ASKED[0])

    assert (code, lines[1]) == (0, base)
    assert lines[0] != base


def test_an_error_is_told_and_the_chat_goes_on(chat: Chat, model: Path, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("{}")
    asked = ["/bse", "/reset now", f"/tools {tmp_path}/tools.json", "/base", "cat " * 400, "//bse"]

    code, lines, said = chat(model, *asked)

    assert code == 1, "a turn was not answered"
    assert len(lines) == 1, "the turn that begins with a slash is answered"
    for cause in (
        "no command /bse",
        "did you mean /base?",
        "/reset takes nothing",
        "holds no list of tools",
        "no base of",
        "the prompt has",
    ):
        assert cause in said


def test_a_model_without_a_chat_template_takes_each_line_for_itself(
    chat: Chat, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    answers = generated(capsys, tmp_path / "plain", *ASKED)

    code, lines, said = chat(tmp_path / "plain", *ASKED)

    assert (code, lines) == (0, answers)
    assert "each line is a prompt of its own" in said
    assert chat(model, *ASKED, options=("--plain",))[1] == answers
    assert chat(tmp_path / "plain", options=("--system", "be brief"))[0] == 2


def test_the_system_text_and_tools_reach_the_template(chat: Chat, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    template = tmp_path / "model" / "chat_template.jinja"
    template.write_text("{% if tools %}<|system|>{{ tools[0].function.name }}{% endif %}" + template.read_text())
    tools = [{"type": "function", "function": {"name": "old cold blue lakes", "parameters": {}}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))

    lines = chat(
        tmp_path / "model", ASKED[0], "/system dogs run over hills", ASKED[0], "/system", f"/tools {tmp_path}/tools.json", ASKED[0]
    )[1]

    assert len(set(lines)) == 3


def test_what_is_half_there_is_refused(chat: Chat, model: Path, adapter: Path, tmp_path: Path) -> None:
    weights = shutil.copytree(model, tmp_path / "cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    shutil.copytree(model, tmp_path / "empty")
    (tmp_path / "empty" / "model.safetensors").unlink()
    shutil.copytree(adapter, tmp_path / "orphan")
    config = json.loads((adapter / "adapter_config.json").read_text())
    (tmp_path / "orphan" / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(tmp_path / "gone")}))

    for folder, cause in (("cut", "is damaged: it should have"), ("empty", "it has no weights"), ("orphan", "there is no such folder")):
        code, _, said = chat(tmp_path / folder)
        assert (code, cause in said) == (2, True), said


@pytest.mark.parametrize(
    ("name", "left", "cause"),
    [
        ("config.json", None, "holds weights, and no config.json"),
        ("config.json", 40, "config.json is damaged"),
        ("tokenizer.json", None, "backend tokenizer from one of: (1) a `tokenizers` library serialization file"),
        ("tokenizer.json", 500, "cannot be loaded"),
        ("tokenizer_config.json", 20, "cannot be loaded"),
        ("generation_config.json", 20, "generation_config.json is damaged"),
        ("shards", None, "model-00002-of-00002.safetensors of 2 files of weights is not there"),
    ],
)
def test_a_folder_that_has_lost_a_file_or_its_end_is_refused(
    name: str, left: int | None, cause: str, chat: Chat, model: Path, tmp_path: Path
) -> None:
    """`left`: bytes of the file; None: it is gone. `shards`: one of two files of weights is."""
    folder = shutil.copytree(model, tmp_path / "half")
    if name == "shards":
        shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        (folder / "model.safetensors").rename(folder / shards[0])
        index = {"weight_map": {"lm_head.weight": shards[1], "model.norm.weight": shards[0]}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    elif left is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:left])
    code, lines, said = chat(folder, ASKED[0])
    assert (code, lines) == (2, []), said
    assert cause in said, said
    assert "half" in said


def test_a_run_whose_model_was_deleted_is_refused(chat: Chat, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "first"
    shutil.copytree(model, run / "train" / "model")
    (run / "report.json").write_text(json.dumps({"tasks": {"train": {"kind": "train"}}}))
    (run / "train" / "result.json").write_text(json.dumps({"model_uri": "gone", "base_model_uri": str(model)}))
    assert chat(run, ASKED[0])[0] == 0
    shutil.rmtree(run / "train" / "model")
    code, lines, said = chat(run, ASKED[0])
    assert (code, lines) == (2, []), said
    assert f"{run}/train/model does not exist" in said


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:9/v1"]) == 1
    assert "does not answer: " in capsys.readouterr().err
    assert main(["chat", "--url", "127.0.0.1:9"]) == 2
    assert main(["chat"]) == 2
