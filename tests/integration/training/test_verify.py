"""`tuneyard verify` names what differs between a model, its certificate and its run; `tuneyard sign` makes a signature that it checks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file
from tests.builders.checkpoints import saves_in_turn
from tests.builders.models import write_chats, write_model

from tuneyard.cli import main
from tuneyard.training import command
from tuneyard.training.provenance.certificate import FILE

EVERY, STEPS = 2, 6


@dataclass(frozen=True)
class Run:
    """A run whose base and data lie beside it, at paths that its certificate names."""

    home: Path

    @property
    def model(self) -> Path:
        return self.task / "model"

    @property
    def task(self) -> Path:
        return self.home / "out" / "train"

    @property
    def newest(self) -> Path:
        return self.task / "checkpoints" / f"step-{STEPS}.1"


Verify = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    """`tuneyard verify … -o json`: exit code, and what was found of each thing."""

    def run(*argv: Any) -> tuple[int, dict[str, dict[str, str]]]:
        capsys.readouterr()
        code = main(["verify", *map(str, argv), "-o", "json"])
        found: dict[str, dict[str, str]] = {}
        for each in json.loads(capsys.readouterr().out):
            found[each["about"] if each["about"] not in found else f"{each['about']} {len(found) - 6}"] = each
        return code, found

    return run


def train_at(home: Path, method: dict[str, Any], kind: str = "llama") -> Run:
    task = {
        "model": {"name": str(write_model(home / "base", kind))},
        "data": {"source": str(write_chats(home / "chats.jsonl")), "maxLength": 64},
        "method": method,
        "optimizer": {"learningRate": 1e-2, "warmup": 0},
        "batch": {"global": 4, "micro": 2},
        "checkpoint": {"everySteps": EVERY},
        "steps": STEPS,
    }
    body = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}}
    (home / "job.yaml").write_text(yaml.safe_dump({**body, "spec": {"tasks": [{"name": "train", "train": task}]}}))
    with saves_in_turn():
        assert command.main([str(home / "job.yaml"), "--task", "train", "--out", str(home / "out")]) == 0
    return Run(home)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_at(tmp_path_factory.mktemp("adapter"), {"lora": {"rank": 4, "merge": True}})


@pytest.fixture
def ran(trained: Run, tmp_path: Path) -> Any:
    """The run, restored at the end."""
    copy = tmp_path / "copy"
    shutil.copytree(trained.home, copy)
    yield trained
    shutil.rmtree(trained.home)
    shutil.copytree(copy, trained.home)


def flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def seal(run: Run) -> None:
    """Forge the hashes of a changed model folder, in its certificate and in its manifest."""
    named = json.loads((run.model / FILE).read_text())
    named["files"] = {path: sha256((run.model / path).read_bytes()).hexdigest() for path in named["files"]}
    (run.model / FILE).write_text(json.dumps(named))
    manifest = json.loads((run.model / "manifest.json").read_text())
    for file in manifest["files"]:
        content = (run.model / file["path"]).read_bytes()
        file |= {"size": len(content), "sha256": sha256(content).hexdigest()}
    (run.model / "manifest.json").write_text(json.dumps(manifest))


def stronger(path: Path) -> None:
    """Change all weights of a file."""
    save_file({name: weight * 1.01 for name, weight in load_file(path).items()}, path, {"format": "pt"})


def forge_weights(run: Run) -> None:
    stronger(run.model / "adapter_model.safetensors")
    seal(run)


def forge_log(run: Run) -> None:
    for entry in (run.task / "checkpoints" / "log").glob("*.json"):
        if json.loads(entry.read_text()).get("step") == STEPS:
            change(entry, sha256="0" * 64)


def add_row(run: Run) -> None:
    chats = run.home / "chats.jsonl"
    chats.write_text(chats.read_text().replace("cat", "dog", 1))


TAMPERING: dict[str, tuple[Callable[[Run], object], str, str]] = {
    "a byte of weights": (lambda run: flip(run.model / "adapter_model.safetensors"), "files", "changed: adapter_model.safetensors"),
    "a setting": (lambda run: change(run.model / "adapter_config.json", lora_alpha=99), "files", "changed: adapter_config.json"),
    "a file that is missing": (lambda run: (run.model / "tokenizer.json").unlink(), "files", "missing: tokenizer.json"),
    "a file that is new": (lambda run: (run.model / "modeling.py").write_text("import os"), "files", "new: modeling.py"),
    "a certificate": (lambda run: change(run.model / FILE, losses=[0.1] * STEPS), "files", f"changed: {FILE}"),
    "a forged manifest": (forge_weights, "weights", "differ from the checkpoint of step 6"),
    "a swapped base": (lambda run: stronger(run.home / "base" / "model.safetensors"), "base", "changed: model.safetensors"),
    "a byte of data": (add_row, "data", "other samples"),
    "a forged commit": (forge_log, "checkpoints", "the commit log names other content for step 6"),
    "a byte of a checkpoint": (lambda run: flip(next(run.newest.glob("*.safetensors"))), "checkpoints", "SHA-256"),
    "a hidden file": (lambda run: (run.model / ".hidden.py").write_text("import os"), "files", "new: .hidden.py"),
    "a forged setting": (lambda run: (change(run.model / "adapter_config.json", lora_alpha=99), seal(run)), "weights", "lora_alpha"),
    "a forged step": (lambda run: (change(run.model / FILE, step=3), seal(run)), "weights", "names no checkpoint of step 3"),
    "forged losses": (
        lambda run: (change(run.task / "result.json", losses=[0.1] * STEPS), change(run.model / FILE, losses=[0.1] * STEPS), seal(run)),
        "log",
        "the checkpoint of step 6 has other losses",
    ),
    "a certificate without a base": (lambda run: (change(run.model / FILE, base={}), seal(run)), "base", "names no file of the base"),
    "a damaged commit log": (lambda run: next((run.task / "checkpoints/log").glob("*3.json")).write_text("{"), "checkpoints", "log"),
    "a file that is cut short": (
        lambda run: (run.model / "adapter_model.safetensors").write_bytes(b"{}"),
        "weights",
        "cannot be read: SafetensorError",
    ),
    "losses": (lambda run: change(run.task / "result.json", losses=[0.1] * STEPS), "log", "result.json has other losses"),
}


def test_a_model_as_it_was_trained_is_verified(trained: Run, verify: Verify) -> None:
    code, found = verify(trained.model)

    assert code == 0
    assert found.pop("signature")["state"] == "not checked"
    assert {about: each["state"] for about, each in found.items()} == dict.fromkeys(
        ("files", "base", "data", "checkpoints", "weights", "log"), "ok"
    )


@pytest.mark.parametrize("what", TAMPERING)
def test_tampering_is_named(what: str, ran: Run, verify: Verify) -> None:
    tamper, about, words = TAMPERING[what]
    tamper(ran)

    code, found = verify(ran.model)

    assert code == 1
    assert found[about]["state"] == "failed"
    assert words in found[about]["words"]


def test_a_replay_finds_what_was_forged_everywhere(ran: Run, verify: Verify) -> None:
    """Model, checkpoint, manifests, certificate and commit log agree, and only training again tells. An untouched stretch is equal."""
    (file,) = ran.newest.glob("*.safetensors")
    weights = load_file(file)
    save_file({name: tensor * 1.01 if "|weight" in name else tensor for name, tensor in weights.items()}, file)
    forge_checkpoint(ran, file)
    stronger(ran.model / "adapter_model.safetensors")
    seal(ran)
    code, found = verify(ran.model)
    assert code == 0, found

    code, found = verify(ran.model, "--replay", 9)

    assert code == 1
    assert found["replay"]["words"] == "steps 1 to 2: 28 weights are equal, bit for bit (1 rank)", "from the start"
    assert found["replay 2"]["words"] == "steps 3 to 4: 28 weights are equal, bit for bit (1 rank)"
    assert found["replay 3"]["words"].startswith("steps 5 to 6: 28 of 28 weights differ")


def forge_checkpoint(run: Run, file: Path) -> None:
    """Forge the hashes of a changed file in the index, the manifest, the commit log and the certificate."""
    content = file.read_bytes()
    was: dict[str, str] = {}
    for path in (next(run.newest.glob("rank-*.json")), run.newest / "manifest.json"):
        before = sha256(path.read_bytes()).hexdigest()
        values = json.loads(path.read_text())
        for each in values["files"]:
            if each["path"] == file.name:
                each["sha256"] = sha256(content).hexdigest()
                each |= {"size_bytes": len(content)} if "size_bytes" in each else {"size": len(content)}
            elif each["path"] in was:
                each["sha256"] = was[each["path"]]
                each["size"] = (run.newest / each["path"]).stat().st_size
        path.write_text(json.dumps(values))
        was[path.name] = sha256(path.read_bytes()).hexdigest()
        was[before] = was[path.name]
    for named in [*(run.task / "checkpoints" / "log").glob("*.json"), run.model / FILE]:
        text = named.read_text()
        for before, after in was.items():
            text = text.replace(before, after) if len(before) == 64 else text
        named.write_text(text)


def test_another_layout_and_the_output_of_a_job_are_verified(trained: Run, verify: Verify, tmp_path: Path) -> None:
    """The gradient of GPT-2's key biases is zero, and Adam makes steps of its rounding."""
    assert verify(trained.task)[0] == 0
    run = train_at(tmp_path / "run", {"full": {}}, "gpt2")
    code, found = verify(run.home / "out", "--replay", 1, "--seed", 2, "--workers", 2)

    assert code == 0
    assert found["replay"]["state"] == "ok"
    assert "(2 ranks)" in found["replay"]["words"]


def test_dropout_is_not_tried_again_in_another_layout(tmp_path: Path, verify: Verify) -> None:
    run = train_at(tmp_path / "run", {"lora": {"rank": 4, "dropout": 0.2}})
    code, found = verify(run.home / "out", "--replay", 1, "--workers", 2)

    assert code == 0
    assert found["replay"]["state"] == "not checked"
    assert found["replay"]["words"].startswith("the adapter has dropout 0.2, and another layout drops other activations")


def test_no_certificate_alone_runs_code(tmp_path: Path, verify: Verify) -> None:
    """It is a file of the folder, as the code is."""
    run, proof = train_at(tmp_path / "run", {"full": {}}), tmp_path / "ran"
    (run.model / "modeling_own.py").write_text(f"open({str(proof)!r}, 'w')\nfrom transformers import LlamaForCausalLM as Own")
    change(run.model / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    named = json.loads((run.model / FILE).read_text())
    named["request"]["task"]["model"]["trustRemoteCode"] = True
    (run.model / FILE).write_text(json.dumps(named))
    seal(run)

    code, found = verify(run.model, "--replay", 1)

    assert not proof.exists()
    assert code == 1
    assert found["weights"]["words"] == found["replay"]["words"] == "the model comes with Python code: --trust-remote-code runs it"


def test_a_full_model_is_verified_wherever_it_lies(tmp_path: Path, verify: Verify) -> None:
    run = train_at(tmp_path / "run", {"full": {}})
    shutil.copytree(run.model, tmp_path / "elsewhere")

    there, elsewhere = verify(run.model), verify(tmp_path / "elsewhere")

    assert there[0] == elsewhere[0] == 0
    assert "bit for bit" in there[1]["weights"]["words"]
    assert elsewhere[1]["weights"]["state"] == "not checked"
    assert elsewhere[1]["base"]["state"] == "ok"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "theirs"):
        made = f"openssl ecparam -name prime256v1 -genkey -noout -out {name}.pem && openssl ec -in {name}.pem -pubout -out {name}.pub"
        subprocess.run(made, shell=True, cwd=folder, check=True, capture_output=True)
    return folder


def test_signatures_are_checked(ran: Run, keys: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """By relative paths, too."""
    assert verify(ran.model, "--key", keys / "mine.pub")[1]["signature"]["words"] == "the model has no model.sig"
    monkeypatch.chdir(ran.home)
    assert main(["sign", "out", "--key", str(keys / "mine.pem")]) == 0
    assert not (ran.home / "out" / "model.sig").exists(), "of the model, as verify checks it, and not of the run"
    assert verify("out/train/model", "--key", keys / "mine.pub")[1]["signature"]["state"] == "ok"

    assert verify(ran.model, "--key", keys / "mine.pub")[1]["signature"]["state"] == "ok"
    assert verify(ran.model, "--key", keys / "theirs.pub")[1]["signature"]["state"] == "failed"
    forge_weights(ran)
    code, found = verify(ran.model, "--key", keys / "mine.pub")
    assert code == 1
    assert "adapter_model.safetensors" in found["signature"]["words"]


def test_a_run_signs_with_the_key_of_its_environment(keys: Path, tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_SIGNING_KEY", (keys / "mine.pem").read_text())
    run = train_at(tmp_path / "run", {"lora": {"rank": 2}})

    code, found = verify(run.model, "--key", keys / "mine.pub")

    assert code == 0, found
    assert found["signature"]["state"] == "ok"


def test_bad_keys_and_models_are_refused(
    trained: Run, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that cannot sign ends a run before it trains."""
    monkeypatch.setenv("TUNEYARD_SIGNING_KEY", str(tmp_path / "none.pem"))
    (tmp_path / "run").mkdir()
    assert command.main([str(trained.home / "job.yaml"), "--task", "train", "--out", str(tmp_path / "run")]) != 0
    assert main(["sign", str(trained.model), "--key", str(keys / "mine.pub")]) != 0
    assert main(["sign", "s3://models/first", "--key", str(keys / "mine.pem")]) == 2
    assert main(["verify", str(trained.model), "--key", str(tmp_path / "none.pub")]) != 0
    assert main(["verify", str(trained.home / "base")]) != 0

    said = capsys.readouterr().err
    assert "none.pem is not a private key that can sign" in said
    assert "mine.pub is not a private key that can sign" in said
    assert "none.pub is not a public key" in said
    assert f"has no {FILE}" in said
