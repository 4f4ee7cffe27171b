"""What training sets on GPUs, as far as a CPU can tell: values of the arguments, and that none of them changes a loss."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import saves_in_turn, stop_after
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material

from tuneyard.training import TrainRequest, arguments, train
from tuneyard.training import attempt as attempts
from tuneyard.training.collate import Collator

SAMPLES = [[5, 6, 7, 8, 9], [20, 21, 22]]


def request_of(folder: Path, material: Material, **task: Any) -> TrainRequest:
    fields = {"checkpoint": {"everySteps": 2, "keep": 3}, **task}
    return train_request(folder, train_task(material.model, material.text, **fields), cpu_plan())


@pytest.mark.parametrize(
    ("sku", "precision", "optimizer", "offload", "optim", "tf32"),
    [
        ("h100-80gb", "bf16", "adamw", "none", "adamw_torch_fused", True),
        ("h100-80gb", "fp32", "adamw", "none", "adamw_torch_fused", None),
        ("h100-80gb", "bf16", "adamw", "cpu", "adamw_torch", True),
        ("h100-80gb", "bf16", "adamw-8bit", "none", "adamw_bnb_8bit", True),
        ("cpu", "bf16", "adamw", "none", "adamw_torch", None),
    ],
)
def test_arguments_for_gpus(sku: str, precision: str, optimizer: str, offload: str, optim: str, tf32: bool | None, tmp_path: Path) -> None:
    task = train_task(tmp_path / "model", tmp_path / "text", optimizer={"name": optimizer})
    plan = cpu_plan(sku=sku, precision=precision, zero=0 if offload == "none" else 2, offload_optimizer=offload)

    values = arguments.argument_values(task, plan, steps=6, scratch=tmp_path)

    assert (values["optim"], values["tf32"]) == (optim, tf32)


def test_a_fused_optimizer_has_the_losses_of_the_other_and_resumes_bit_for_bit(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(request_of(tmp_path / "plain", material))
    monkeypatch.setattr(arguments, "fused_adamw", lambda *_: True)
    with saves_in_turn():
        fused = train(request_of(tmp_path / "fused", material))
    shutil.copytree(tmp_path / "fused", tmp_path / "stopped")
    stop_after(2, tmp_path / "stopped" / "out")

    resumed = train(request_of(tmp_path / "stopped", material))

    assert fused.losses == pytest.approx(plain.losses, rel=1e-6)
    assert (resumed.resumed_from, resumed.losses) == (2, fused.losses)


@pytest.mark.parametrize("pack", [False, True])
def test_wider_rows_change_no_loss(pack: bool, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"source": str(material.text), "maxLength": 60, "pack": pack}
    plain = train(request_of(tmp_path / "plain", material, data=data))
    monkeypatch.setattr(attempts, "Collator", lambda pad, **given: Collator(pad, **{**given, "multiple": 32}))

    wider = train(request_of(tmp_path / "wider", material, data=data))

    assert wider.losses == pytest.approx(plain.losses, rel=1e-6)
    assert wider.tokens == plain.tokens


@pytest.mark.parametrize(("longest", "width"), [(64, 8), (7, 7)])
def test_rows_grow_to_a_multiple_but_not_beyond_the_longest(longest: int, width: int) -> None:
    rows = [{"input_ids": sample, "labels": sample} for sample in SAMPLES]

    batch = Collator(pad_token_id=1, multiple=8, longest=longest)(rows)

    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape == (2, width)
    assert batch["attention_mask"].sum(dim=1).tolist() == batch["tokens"] == [5, 3]
    assert batch["input_ids"][1].tolist() == [20, 21, 22] + [1] * (width - 3)
    assert batch["labels"][1].tolist() == [20, 21, 22] + [-100] * (width - 3)


def test_a_result_tells_memory_of_device_and_host(material: Material, tmp_path: Path) -> None:
    result = train(request_of(tmp_path, material))

    assert result.reserved_memory_gb == [0.0]
    assert result.host_memory_gb == pytest.approx(result.peak_memory_gb, rel=0.05)
