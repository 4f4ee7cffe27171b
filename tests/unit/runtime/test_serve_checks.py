"""What `tuneyard serve` refuses before it starts an engine, and how the server is started."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from tests.builders.models import write_adapter, write_model

from tuneyard.api import BadInput
from tuneyard.cli import main
from tuneyard.runtime.serve.arguments import Wishes, command_of, environment_of, settings_of
from tuneyard.runtime.serve.models import Served, served_models
from tuneyard.runtime.serve.ports import check_address, url_of


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two base models, and adapters: `chats` and `wide` of the first, `other` of the second, `dora` of the first."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "base", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    write_model(folder / "second", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    write_adapter(folder / "chats", folder / "base")
    write_adapter(folder / "wide", folder / "base", r=12, target_modules=["q_proj", "lm_head"])
    write_adapter(folder / "other", folder / "second")
    write_adapter(folder / "dora", folder / "base", use_dora=True)
    template = folder / "wide" / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|assistant|>", "<|system|>"))
    settings = json.loads((folder / "chats" / "tokenizer_config.json").read_text())
    shutil.copytree(folder / "chats", folder / "plain")
    (folder / "plain" / "tokenizer_config.json").write_text(json.dumps({**settings, "tuneyard_prompts": "plain"}))
    shutil.copytree(folder / "chats", folder / "words")
    vocabulary = (folder / "words" / "tokenizer.json").read_text()
    (folder / "words" / "tokenizer.json").write_text(vocabulary.replace("<|user|>", "<|person|>"))
    return folder


def of(models: Path, *names: str, called: tuple[str, ...] = ()) -> Served:
    return served_models([str(models / name) for name in names], called, models / "cache", trust=False)


def test_adapters_of_one_base_are_served_by_name_each_in_its_own_form(models: Path) -> None:
    served = of(models, "chats", "wide", "plain")

    assert served.names == ["chats", "wide", "plain", "base"]
    assert {name for name, form in served.forms.items() if form.chats} == {"chats", "wide", "base"}
    assert served.forms["chats"].template == served.forms["base"].template != served.forms["wide"].template
    assert served.forms["plain"].why_plain == "it was trained on plain prompts"
    assert of(models, "base", "chats", called=("b", "c")).names == ["b", "c"], "a base that is named itself is not served twice"


def test_the_engine_is_ready_for_each_adapter(models: Path, tmp_path: Path) -> None:
    served = of(models, "chats", "wide")
    settings = settings_of(served, Wishes(), sku="cpu")

    command = command_of(served, settings, "127.0.0.1", 8000)
    environment = environment_of(served, settings, "secret", tmp_path)

    def option(name: str) -> list[str]:
        rest = command[command.index(name) + 1 :]
        return rest[: next((place for place, word in enumerate(rest) if word.startswith("--")), len(rest))]

    assert (option("--max-lora-rank"), option("--max-loras")) == (["16"], ["2"])
    assert {"lm_head", "q_proj", "down_proj"} <= set(option("--lora-target-modules"))
    assert [json.loads(each)["name"] for each in option("--lora-modules")] == ["chats", "wide"]
    assert option("--served-model-name") == ["base"]
    assert environment["VLLM_API_KEY"] == "secret"
    assert not any("secret" in word for word in command)
    assert list(json.loads((tmp_path / "forms.json").read_text())) == ["chats", "wide", "base"]


@pytest.mark.parametrize(
    ("names", "called", "cause"),
    [
        (["chats", "other"], (), "an engine has one base model"),
        (["base", "second"], (), "an engine has one"),
        (["base", "other"], (), "an engine has one base model"),
        (["chats", "chats"], (), "is named twice"),
        (["chats", "wide"], ("a", "a"), "two models would be served as a"),
        (["chats"], ("base",), "two models would be served as base"),
        (["chats"], ("a", "b"), "2 names for 1 models"),
        (["dora"], (), "it is a DoRA adapter"),
        (["chats", "words"], (), "different tokenizers"),
        (["gone"], (), "there is no folder"),
    ],
)
def test_models_that_no_engine_serves_together_are_refused(models: Path, names: list[str], called: tuple[str, ...], cause: str) -> None:
    with pytest.raises(BadInput, match=cause):
        of(models, *names, called=called)


def test_a_length_beyond_the_model_is_refused_in_the_words_of_the_option(models: Path) -> None:
    with pytest.raises(BadInput, match=r"--max-length is 300, but the model was built for 256 positions"):
        settings_of(of(models, "base"), Wishes(max_length=300), sku="cpu")


def test_a_port_in_use_is_named_with_a_free_one(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["serve", str(models / "base"), "--port", str(port)]) == 2

    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 cannot be used: address already in use" in said
    assert "next: take a free one: --port " in said
    assert check_address("127.0.0.1", 0, has_key=False) > 0


def test_other_machines_need_a_key(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNEYARD_API_KEY", raising=False)
    assert main(["serve", str(models / "base"), "--host", "0.0.0.0"]) == 2
    assert "no key is set" in capsys.readouterr().err
    assert check_address("0.0.0.0", 0, has_key=True) > 0
    with pytest.raises(BadInput, match="is no address of this machine"):
        check_address("no.such.host.invalid", 80, has_key=True)
    assert url_of("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert url_of("::1", 80) == "http://[::1]:80"
