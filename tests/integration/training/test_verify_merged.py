"""`tuneyard verify` compares a merged model with the base and the adapter that it was merged from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.integration.training.test_verify import change, train_at

from tuneyard.cli import main
from tuneyard.training.provenance.certificate import FILE

PROJECTION, NORM = "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
Verify = Callable[..., tuple[int, list[dict[str, str]]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run with `merged/`, and of a folder that `tuneyard merge` has made of its adapter in bf16."""
    home = tmp_path_factory.mktemp("run")
    train_at(home, {"lora": {"rank": 4, "merge": True}})
    assert main(["merge", str(home / "out" / "train" / "model"), "--out", str(home / "later"), "--dtype", "bf16"]) == 0
    return home


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def of(*argv: Any) -> tuple[int, list[dict[str, str]]]:
        capsys.readouterr()
        code = main(["verify", *map(str, argv), "-o", "json"])
        found: list[dict[str, str]] = json.loads(capsys.readouterr().out)
        return code, found

    return of


def words(found: list[dict[str, str]], about: str) -> tuple[str, str]:
    (one,) = [each for each in found if each["about"] == about]
    return one["state"], one["words"]


@pytest.fixture
def merged(run: Path) -> Any:
    """A folder, restored at the end."""
    folders = {folder: run / "kept" / str(number) for number, folder in enumerate((run / "out" / "train" / "merged", run / "later"))}
    for folder, kept in folders.items():
        shutil.copytree(folder, kept)
    yield lambda kind: run / ("later" if kind == "later" else "out/train/merged")
    for folder, kept in folders.items():
        shutil.rmtree(folder)
        shutil.move(kept, folder)


def forged(folder: Path, change_of: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change weights, and all hashes of them."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    change_of(weights)
    save_file(weights, file, {"format": "pt"})
    content = file.read_bytes()
    if (folder / FILE).exists():
        named = json.loads((folder / FILE).read_text())
        change(folder / FILE, files={**named["files"], file.name: sha256(content).hexdigest()})
    manifest = json.loads((folder / "manifest.json").read_text())
    for each in manifest["files"]:
        here = (folder / each["path"]).read_bytes()
        each |= {"size": len(here), "sha256": sha256(here).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_merged_model_is_base_and_adapter(run: Path, verify: Verify) -> None:
    code, found = verify(run / "out" / "train" / "merged")
    assert code == 0
    state, told = words(found, "weights")
    assert state == "ok"
    assert "weights are base + the adapter of step 6, bit for bit" in told

    code, found = verify(run / "later")
    assert (code, [each["about"] for each in found]) == (0, ["files", "weights"])
    assert "weights are base + the adapter of" in words(found, "weights")[1]


@pytest.mark.parametrize("kind", ["merged", "later"])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        (PROJECTION, lambda weight: weight * 1.03),
        (PROJECTION, lambda weight: weight.index_fill(0, torch.tensor([3]), 0.5)),
        (NORM, lambda weight: weight * 1.03),
    ],
    ids=["a weight with an adapter", "a row of it", "a weight without"],
)
def test_weights_that_are_another_sum_are_named(kind: str, name: str, how: Any, merged: Any, verify: Verify) -> None:
    """Also where every hash is forged."""
    forged(merged(kind), lambda weights: weights.update({name: how(weights[name]).contiguous()}))
    code, found = verify(merged(kind))
    assert code == 1
    assert words(found, "files")[0] == "ok"
    state, told = words(found, "weights")
    assert state == "failed"
    assert "are not base + the adapter of" in told
    assert f": {name} (the first by " in told


def test_rounding_is_no_difference_and_a_missing_weight_is_one(merged: Any, verify: Verify) -> None:
    forged(merged("later"), lambda weights: weights.update({PROJECTION: _next_number(weights[PROJECTION])}))
    assert words(verify(merged("later"))[1], "weights")[0] == "ok"
    changed = merged("merged")
    (changed / "model.safetensors").write_bytes(b"{}")
    assert words(verify(changed)[1], "weights")[0] == "failed"


def _next_number(weight: torch.Tensor) -> torch.Tensor:
    """One number in eight is rounded the other way."""
    away = torch.nextafter(weight, torch.full_like(weight, float("inf")))
    return torch.where(torch.arange(weight.numel()).reshape(weight.shape) % 8 == 0, away, weight).contiguous()


def test_without_its_checkpoint_the_adapter_beside_it_counts(merged: Any, run: Path, verify: Verify) -> None:
    checkpoints = run / "out" / "train" / "checkpoints"
    shutil.move(checkpoints / "step-6.1", run / "away")
    try:
        assert "base + the adapter beside it, bit for bit" in words(verify(merged("merged"))[1], "weights")[1]
    finally:
        shutil.move(run / "away", checkpoints / "step-6.1")
