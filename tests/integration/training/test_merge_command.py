"""`tuneyard merge`: the adapter of a finished run becomes a model folder, or nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tests.builders.models import write_model
from tests.integration.training.conftest import Material
from tests.servers.installed import S3
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tuneyard.cli import main
from tuneyard.storage import open_store
from tuneyard.storage.marks import model_marks
from tuneyard.training import command

ROWS = torch.arange(40).reshape(2, 20)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Merge = Callable[..., Ran]


@pytest.fixture
def merge(capsys: pytest.CaptureFixture[str]) -> Merge:
    """`tuneyard merge …`."""

    def run(*argv: Any) -> Ran:
        capsys.readouterr()
        code = main(["merge", *map(str, argv)])
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return run


def trained(folder: Path, material: Material, method: dict[str, Any], model: Path | None = None) -> Path:
    """The output of a run of one task, `train`, without Ray."""
    task = {
        "model": {"name": str(model or material.model)},
        "data": {"source": str(material.chats), "maxLength": 128},
        "method": method,
        "optimizer": {"learningRate": 1e-2, "warmup": 0},
        "batch": {"global": 8, "micro": 4},
        "strategy": {"zero": 0, "precision": "fp32"},
        "steps": 3,
    }
    body = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}}
    (folder / "job.yaml").write_text(yaml.safe_dump({**body, "spec": {"tasks": [{"name": "train", "train": task}]}}))
    assert command.main([str(folder / "job.yaml"), "--task", "train", "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def lora(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("lora"), material, {"lora": {"rank": 4}})


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=ROWS).logits.float()
    return found


def test_the_merged_model_answers_as_its_base_with_the_adapter(lora: Path, material: Material, merge: Merge, tmp_path: Path) -> None:
    ran = merge(lora, "--out", tmp_path / "merged")

    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [str(tmp_path / "merged")]
    assert "merged = adapter, " in ran.err
    assert "(fp32 rounds by " in ran.err
    adapter = lora / "train" / "model"
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(material.model, dtype=torch.float32), adapter)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(logits(merged), logits(adapted), rtol=1e-4, atol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template == AutoTokenizer.from_pretrained(adapter).chat_template
    ends = GenerationConfig.from_pretrained(tmp_path / "merged").eos_token_id
    assert ends == GenerationConfig.from_pretrained(adapter).eos_token_id
    card = (adapter / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: peft\ntags: [tuneyard]\n---\n")
    assert (tmp_path / "merged" / "README.md").read_text() == card.replace("library_name: peft", "library_name: transformers")
    assert str(material.model.parent) not in card


def test_the_command_writes_what_merge_true_writes(lora: Path, material: Material, merge: Merge, tmp_path: Path) -> None:
    at_once = trained(tmp_path, material, {"lora": {"rank": 4, "merge": True}}) / "train" / "merged"

    assert merge(lora / "train", "--out", tmp_path / "merged").code == 0

    torch.testing.assert_close(load_file(tmp_path / "merged" / "model.safetensors"), load_file(at_once / "model.safetensors"))
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "merged" / name).read_text() == (at_once / name).read_text()


def test_qlora_is_merged_into_what_its_four_bits_stand_for(material: Material, merge: Merge, tmp_path: Path) -> None:
    out = trained(tmp_path, material, {"qlora": {"rank": 4, "merge": True, "quantization": "fp4"}})

    ran = merge(out / "train" / "model", "--out", tmp_path / "merged")

    assert ran.code == 0, ran.err
    torch.testing.assert_close(
        load_file(tmp_path / "merged" / "model.safetensors"), load_file(out / "train" / "merged" / "model.safetensors")
    )


def test_an_adapter_of_an_earlier_version_says_less_of_its_base(lora: Path, merge: Merge, tmp_path: Path) -> None:
    shutil.copytree(lora / "train" / "model", tmp_path / "adapter")
    (tmp_path / "adapter" / "manifest.json").unlink()

    ran = merge(tmp_path / "adapter", "--out", tmp_path / "merged")

    assert ran.code == 0, ran.err
    assert "(fp32 rounds by " in ran.err, "the dtype of the base"


def test_an_adapter_in_a_store_is_merged_into_a_store(lora: Path, s3: S3, merge: Merge) -> None:
    run, target = f"s3://{s3.bucket}/merge/run", f"s3://{s3.bucket}/merge/merged"
    for uri in (run, target):
        open_store(uri).delete_prefix("")
    open_store(run).upload_folder(lora / "train" / "model", "train/model")

    ran = merge(run, "--out", target)

    assert ran.code == 0, ran.err
    assert open_store(target).is_complete("")
    assert ran.out.splitlines() == [target]


def test_an_adapter_that_computes_nothing_is_not_merged(lora: Path, merge: Merge, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    shutil.copytree(lora / "train" / "model", adapter)
    weights = load_file(adapter / "adapter_model.safetensors")
    weights[min(weights)][0, 0] = float("nan")
    save_file(weights, adapter / "adapter_model.safetensors", {"format": "pt"})

    ran = merge(adapter, "--out", tmp_path / "merged")

    assert ran.code == 1
    assert "nothing was written" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


def test_a_base_that_has_changed_is_not_merged(material: Material, merge: Merge, tmp_path: Path) -> None:
    """Unless the user names it: a copy is another place, and its files are the user's word."""
    base = write_model(tmp_path / "base")
    run = trained(tmp_path, material, {"lora": {"rank": 2}}, base)
    shutil.copytree(base, tmp_path / "copy")
    file = base / "model.safetensors"
    save_file({name: weight * 1.5 for name, weight in load_file(file).items()}, file, {"format": "pt"})

    ran = merge(run, "--out", tmp_path / "merged")

    assert ran.code == 2
    assert "was trained on it: model.safetensors" in ran.err
    assert not (tmp_path / "merged").exists()
    assert merge(run, "--out", tmp_path / "merged", "--base", tmp_path / "copy").code == 0


def test_rounding_that_loses_the_adapter_is_said(lora: Path, merge: Merge, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    shutil.copytree(lora / "train" / "model", adapter)
    weights = {name: weight * 1e-3 for name, weight in load_file(adapter / "adapter_model.safetensors").items()}
    save_file(weights, adapter / "adapter_model.safetensors", {"format": "pt"})

    ran = merge(adapter, "--out", tmp_path / "merged", "--dtype", "bf16")

    assert ran.code == 0, ran.err
    assert "warning: rounding to bf16 changes as much as the adapter does: --dtype fp32 keeps it" in ran.err


def test_an_adapter_that_no_merge_can_take_is_refused(material: Material, merge: Merge, tmp_path: Path) -> None:
    tied = write_model(tmp_path / "tied", tie_word_embeddings=True)
    out = trained(tmp_path, material, {"lora": {"rank": 4, "targets": ["q_proj", "lm_head"]}}, tied)

    ran = merge(out, "--out", tmp_path / "merged")

    assert ran.code == 2
    assert "the adapter of the head cannot be merged: this model ties the head to its embedding" in ran.err
    assert "next: use the adapter beside its base model: vLLM and PEFT load both" in ran.err
    assert not (tmp_path / "merged").exists()


def test_what_holds_no_adapter_is_refused(lora: Path, material: Material, merge: Merge, tmp_path: Path) -> None:
    two = tmp_path / "two"
    for name in ("a", "b"):
        shutil.copytree(lora / "train" / "model", two / name / "model")
    (tmp_path / "full").mkdir()
    full = trained(tmp_path / "full", material, {"full": {}})
    unfinished = tmp_path / "unfinished"
    shutil.copytree(lora / "train", unfinished / "train", ignore=shutil.ignore_patterns("model", "scratch"))

    for run, options, words, step in [
        (tmp_path / "nowhere", (), "there is no folder", "give the folder of a finished `tuneyard run`"),
        (two, (), "holds several models: a, b", "give --task one of these"),
        (two, ("--task", "c"), "holds no finished model of task c", "give the folder of a finished `tuneyard run`"),
        (full, ("--task", "train"), "is a whole model: there is nothing to merge", "use it as it is"),
        (unfinished, (), "holds checkpoints, and no finished model", "write the model of a checkpoint"),
        (lora, ("--base", str(tmp_path / "no-model")), "no-model", "check the path"),
    ]:
        ran = merge(run, "--out", tmp_path / "merged", *options)
        assert ran.code in (1, 2)
        assert words in ran.err
        assert step in ran.err
        assert not (tmp_path / "merged").exists()

    (tmp_path / "full" / "a-file").touch()
    assert "is not empty" in merge(lora, "--out", tmp_path / "full").err


def test_the_adapter_of_a_run_says_what_it_was_trained_on(lora: Path, material: Material) -> None:
    about = json.loads((lora / "train" / "model" / "manifest.json").read_text())["extra"]["base"]

    expected = {"base": str(material.model), "revision": None, "precision": "fp32", "quantized": None, "from_scratch": False}
    assert about == expected | {"marks": model_marks(material.model)}
