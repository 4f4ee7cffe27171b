"""What training sets on GPUs, as far as a CPU can tell: values of the arguments, and that none of them changes a loss."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import saves_in_turn, stop_after
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material

from tuneyard.tracking.events import Step
from tuneyard.training import TrainRequest, arguments, train
from tuneyard.training.collate import Collator
from tuneyard.training.distributed import use_growing_segments
from tuneyard.training.trainer import SteppedTrainer

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
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
    as_on_a_gpu = Collator.of
    monkeypatch.setattr(Collator, "of", lambda task, plan, pad: replace(as_on_a_gpu(task, plan, pad), multiple=32))

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


@pytest.mark.parametrize(("sku", "multiple"), [("h100-80gb", 64), ("cpu", 1)])
def test_rows_are_padded_to_multiples_on_gpus(sku: str, multiple: int, tmp_path: Path) -> None:
    task = train_task(tmp_path / "model", tmp_path / "text")

    assert Collator.of(task, cpu_plan(sku=sku), None).multiple == multiple


@pytest.mark.parametrize("given", [None, "max_split_size_mb:64"])
def test_the_allocator_grows_its_segments_unless_the_user_says_otherwise(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOCATOR, raising=False)
    if given is not None:
        monkeypatch.setenv(ALLOCATOR, given)

    use_growing_segments()

    assert os.environ.pop(ALLOCATOR) == (given or "expandable_segments:True")


def test_the_time_left_does_not_count_the_slow_first_step(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step loads, and perhaps compiles, kernels."""
    told: list[Any] = []
    step = SteppedTrainer.training_step

    def slow_at_first(self: Any, *given: Any) -> Any:
        time.sleep(2.0 if self.state.global_step == 0 else 0.0)
        return step(self, *given)

    monkeypatch.setattr(SteppedTrainer, "training_step", slow_at_first)
    train(request_of(tmp_path, material, steps=3), emit=told.append)

    first, second, _ = [event for event in told if isinstance(event, Step)]
    assert second.eta_s < first.eta_s / 4


def test_a_result_tells_memory_of_device_and_host(material: Material, tmp_path: Path) -> None:
    result = train(request_of(tmp_path, material))

    assert result.reserved_memory_gb == [0.0]
    assert result.host_memory_gb == pytest.approx(result.peak_memory_gb, rel=0.05)
