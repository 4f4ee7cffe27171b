"""`tuneyard push`: what a run has made goes to a server with the Hugging Face hub's API, and others load it from there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from tests.builders.models import write_model
from tests.integration.training.conftest import Material
from tests.integration.training.test_merge_command import trained
from tests.servers.faults import S3Proxy
from tests.servers.installed import S3
from tests.servers.model_hub import TOKEN, ModelHub, faults_of_card
from transformers import AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.cli import main
from tuneyard.storage import open_store
from tuneyard.training.model_finder import FoundModel, find_model

Push = Callable[..., tuple[int, str, str]]
KEPT = {"README.md", "chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture(scope="module")
def whole(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("whole"), material, {"full": {}})


@pytest.fixture(scope="module")
def lora(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("lora"), material, {"lora": {"rank": 4}})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelHub]:
    """A server, and clients in this process that use it: huggingface_hub has read the environment at its import."""
    with ModelHub() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture
def push(capsys: pytest.CaptureFixture[str]) -> Push:
    """`tuneyard push …`: exit code, stdout and stderr."""

    def run(*argv: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["push", *map(str, argv)])
        return code, *capsys.readouterr()

    return run


def test_others_load_the_model_that_was_pushed(whole: Path, hub: ModelHub, push: Push, tmp_path: Path) -> None:
    code, out, err = push(whole, "hf://acme/bot", "--private")

    assert code == 0, err
    assert out.splitlines() == [f"{hub.url}/acme/bot"]
    assert "left here: manifest.json, provenance.json" in err
    files = hub.files("acme/bot")
    assert files.keys() == KEPT | {"model.safetensors"}
    assert hub.repositories["acme/bot"].private
    folder = str(whole.parent.parent)
    assert not [name for name, content in files.items() if folder.encode() in content]
    loaded = AutoModelForCausalLM.from_pretrained("acme/bot", cache_dir=tmp_path / "cache")
    for name, weight in load_file(whole / "train" / "model" / "model.safetensors").items():
        assert torch.equal(loaded.get_parameter(name), weight)
    assert AutoTokenizer.from_pretrained("acme/bot", cache_dir=tmp_path / "cache").chat_template
    uploads = len(hub.puts)
    assert push(whole, "hf://acme/bot")[0] == 0
    assert (len(hub.puts), hub.repositories["acme/bot"].commits) == (uploads, 1), "nothing is sent twice"
    assert push(whole / "train", "hf://acme/bot", "--revision", "v2")[1].splitlines() == [f"{hub.url}/acme/bot/tree/v2"]
    assert hub.files("acme/bot", "v2") == files


def test_an_adapter_names_its_base_on_the_hub(lora: Path, material: Material, hub: ModelHub, push: Push, tmp_path: Path) -> None:
    code, _, err = push(lora, "hf://acme/adapter")
    assert code == 2
    assert f"belongs to {material.model}, which is on this machine: others cannot load it" in err
    assert "push the merged model" in err
    assert "has no model acme/base" in push(lora, "hf://acme/adapter", "--base", "acme/base")[2]
    assert push(material.model, "hf://acme/base")[0] == 0

    code, _, err = push(lora, "hf://acme/adapter", "--base", "acme/base")

    assert code == 0, err
    files = hub.files("acme/adapter")
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "acme/base"
    card = files["README.md"].decode()
    told = yaml.safe_load(card.split("---\n")[1])
    assert (told["base_model"], told["base_model_relation"], told["library_name"]) == ("acme/base", "adapter", "peft")
    assert not [name for name, content in files.items() if str(material.model).encode() in content]
    loaded = AutoModelForCausalLM.from_pretrained("acme/adapter", cache_dir=tmp_path / "cache")
    assert any("lora_A" in name for name, _ in loaded.named_parameters())
    weights = load_file(material.model / "model.safetensors")
    other = tmp_path / "other"
    shutil.copytree(material.model, other)
    save_file({name: weight + 1 for name, weight in weights.items()}, other / "model.safetensors", {"format": "pt"})
    assert push(other, "hf://acme/other")[0] == 0
    assert "acme/other has other weights than the base of the adapter" in push(lora, "hf://acme/adapter", "--base", "acme/other")[2]
    # transformers would load the adapter that lies beside other weights.
    assert push(other, "hf://acme/adapter")[0] == 0
    assert not [name for name in hub.files("acme/adapter") if "adapter" in name]
    # A base that has gone is needed by nobody who names it on the hub.
    moved = material.model.rename(material.model.with_name("moved"))
    try:
        assert push(lora, "hf://acme/adapter", "--base", "acme/base")[0] == 0
    finally:
        moved.rename(material.model)


def test_what_is_no_whole_model_stays(whole: Path, hub: ModelHub, push: Push, tmp_path: Path) -> None:
    for name in ("scripts", "cut"):
        shutil.copytree(whole / "train" / "model", tmp_path / name)
        (tmp_path / name / "manifest.json").unlink()
    (tmp_path / "scripts" / "train.py").write_text("KEY = 'secret'")
    code, _, err = push(tmp_path / "scripts", "hf://acme/scripts")
    assert code == 0, err
    assert "train.py" not in hub.files("acme/scripts")
    assert "left here: provenance.json, train.py" in err
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert push(tmp_path / "cut", "hf://acme/cut")[0] == 2
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert push(tmp_path / "cut", "hf://acme/cut")[0] == 2
    assert "acme/cut" not in hub.repositories
    assert "has no train task other" in push(tmp_path / "scripts", "hf://acme/scripts", "--task", "other")[2]


def environment_of(hub: ModelHub, folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    return {**kept, "HF_HOME": str(folder), "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, **more}


def test_the_usual_client_of_the_hub_uploads_by_xet(whole: Path, tmp_path: Path) -> None:
    """Its storage is a folder here: that the content arrives is what Xet's own client says."""
    with ModelHub(xet=tmp_path / "xet") as hub:
        command = [str(Path(sys.executable).with_name("tuneyard")), "push", str(whole), "hf://acme/bot"]

        done = subprocess.run(command, env=environment_of(hub, tmp_path), capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stderr
        weights = (whole / "train" / "model" / "model.safetensors").read_bytes()
        assert hub.repositories["acme/bot"].branches["main"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
        assert (hub.puts, sum(path.stat().st_size for path in (tmp_path / "xet").rglob("*") if path.is_file()) > 0) == ([], True)


def test_a_push_that_is_killed_goes_on_when_it_is_repeated(whole: Path, tmp_path: Path) -> None:
    with ModelHub(hold=1) as hub:
        environment = environment_of(hub, tmp_path, HF_HUB_DISABLE_XET="1")
        command = [str(Path(sys.executable).with_name("tuneyard")), "push", str(whole), "hf://acme/bot"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as pushing:
            assert hub.held.wait(120), pushing.stderr and pushing.stderr.read()
            pushing.send_signal(signal.SIGKILL)
        assert hub.files("acme/bot") == {}, "nothing is there by half"
        first = list(hub.puts)
        hub.hold = None

        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [f"{hub.url}/acme/bot"]
        assert hub.files("acme/bot").keys() == KEPT | {"model.safetensors"}
        assert len(first) == 1
        assert len(hub.puts) == len(set(hub.puts)) == 2, "what was there is not sent again"


def test_refusals_say_why(whole: Path, lora: Path, hub: ModelHub, push: Push, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = tmp_path / "half"
    shutil.copytree(whole / "train" / "model", half)
    (half / "tokenizer.json").unlink()
    unfinished = tmp_path / "unfinished"
    shutil.copytree(whole / "train", unfinished / "train", ignore=shutil.ignore_patterns("model", "scratch"))
    card = tmp_path / "card"
    shutil.copytree(write_model(tmp_path / "plain"), card)
    (card / "README.md").write_text("---\ntags: {a: 1}\n---\n")
    assert push(whole, "hf://acme/public")[0] == 0

    for run, target, options, words, step in [
        (whole, "hf://other/bot", (), 'rights to create a model under the namespace "other"', "of your own or of your organization"),
        (whole, "hf://acme/bot--x", (), "names no repository of a model", "write hf://owner/name"),
        (whole, "hf://bot", (), "names no repository of a model", "write hf://owner/name"),
        (whole, "hf://acme/public", ("--private",), "acme/public is there, and public", "make it private"),
        (
            whole,
            "acme/bot",
            (),
            "there is no folder acme/bot",
            "write hf://acme/bot for the Hugging Face hub, or ./acme/bot",
        ),
        (whole, str(half), (), "half is not empty", "give another folder"),
        (whole, str(tmp_path / "folder"), ("--private",), "are for hf://", "leave them out"),
        (half, "hf://acme/bot", (), "has lost files since it was written, or they were changed: tokenizer.json", "from a copy"),
        (unfinished, "hf://acme/bot", (), "holds checkpoints, and no finished model", "tuneyard run --resume"),
        (tmp_path / "nowhere", "hf://acme/bot", (), "there is no folder", "give the folder of a finished `tuneyard run`"),
        (card, "hf://acme/bot", (), '"tags" must be a list of strings', "mend"),
        (lora, "hf://acme/bot", ("--base", "/a/b/c"), "--base /a/b/c is no name on the Hugging Face hub", "--base owner/name"),
    ]:
        code, out, err = push(run, target, *options)
        assert (code, out) == (2, ""), err
        assert words in err
        assert step in err
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert f"{hub.url} does not accept the token" in push(whole, "hf://acme/bot")[2]
    monkeypatch.delenv("HF_TOKEN")
    code, _, err = push(whole, "hf://acme/bot")
    assert code == 2
    assert f"there is no token for {hub.url}" in err
    assert "set HF_TOKEN or run hf auth login" in err
    assert set(hub.repositories) == {"acme/public", "acme/bot"}
    assert hub.files("acme/bot") == {}


def test_a_folder_of_this_machine_gets_what_a_bucket_gets(push: Push, tmp_path: Path) -> None:
    model, target = write_model(tmp_path / "plain"), tmp_path / "new" / "bot"
    (model / "optimizer.pt").touch()

    for _ in range(2):
        code, out, err = push(model, target)
        assert (code, out) == (0, f"{target}\n"), err

    assert find_model(str(target)) == FoundModel("bot", str(target))
    assert (target / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert not (target / "optimizer.pt").exists()
    assert push(model, model)[0] == 2


def test_a_bucket_gets_what_the_hub_would_get(whole: Path, s3: S3, push: Push) -> None:
    target = f"s3://{s3.bucket}/push/bot"
    open_store(target).delete_prefix("")

    for _ in range(2):
        code, out, err = push(whole, target)
        assert code == 0, err
        assert out.splitlines() == [target]

    files = {file.path for file in open_store(target).list()}
    assert files == KEPT | {"model.safetensors", "manifest.json"}
    assert open_store(target).is_complete("")
    assert faults_of_card(open_store(target).get("README.md").decode()) == []
    assert find_model(target) == find_model(f"{target}/") == FoundModel("bot", target)
    run = open_store(f"s3://{s3.bucket}/push-run")
    for path in (whole / "train" / "model").iterdir():
        run.put(f"train/model/{path.name}", path.read_bytes())
    assert find_model(run.uri).uri == find_model(f"{run.uri}/train").uri == f"{run.uri}/train/model"
    with pytest.raises(BadInput, match="there is nothing at"):
        find_model(f"s3://{s3.bucket}/push-nothing")
    code, _, err = push(whole, f"s3://{s3.bucket}/push")
    assert code == 2
    assert "push is not empty" in err
    store = open_store(f"s3://{s3.bucket}/push/another")
    store.delete_prefix("")
    store.put("config.json", b"{}")
    assert "push/another is not empty" in push(whole, f"s3://{s3.bucket}/push/another")[2]
    assert store.get("config.json") == b"{}"


@pytest.mark.parametrize("command", ["push", "merge", "export"])
def test_a_command_that_was_killed_while_it_wrote_to_a_bucket_is_repeated(command: str, whole: Path, lora: Path, s3: S3) -> None:
    """Killed while the store takes the weights; meanwhile it has taken the small files."""
    store = open_store(f"s3://{s3.bucket}/killed-{command}")
    store.delete_prefix("")
    given = {
        "push": ["push", str(whole), store.uri],
        "merge": ["merge", str(lora), "--out", store.uri],
        "export": ["export", str(whole), "--format", "merged", "--out", store.uri],
    }[command]
    proxy = S3Proxy(s3.port)
    proxy.refused_path = "model.safetensors"
    with proxy.listening() as port:
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        program = [str(Path(sys.executable).with_name("tuneyard")), *given]
        with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            while not proxy.refused or not store.exists("config.json"):
                assert running.poll() is None, running.stderr and running.stderr.read()
                time.sleep(0.05)
            running.kill()
    left = {file.path for file in store.list()}
    assert "config.json" in left
    assert not left & {"model.safetensors", "manifest.json"}

    store.put("notes.txt", b"of somebody else")
    assert main(given) == 2
    assert store.get("notes.txt") == b"of somebody else"
    store.delete("notes.txt")
    assert main(given) == 0
    assert {file.path for file in store.list()} == {file.path for file in store.manifest("").files} | {"manifest.json"}
    find_model(store.uri)
    weights = store.get("model.safetensors")
    other = ["export", str(whole), "--format", "merged", "--out", store.uri]
    assert main(other) == 2, "what is finished stays"
    assert store.get("model.safetensors") == weights
