"""Training on an NVIDIA GPU: nccl, bf16, flash attention, QLoRA, offload. Skipped, loudly, where there is none.

Each test can run alone, and in any order: a run on the processor has a process of its own, because DeepSpeed keeps the first accelerator
that a process asks for.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text

from tuneyard.training import TrainRequest, train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: nothing of tests/gpu was tested here")]


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} IS NOT INSTALLED: not tested here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gpu") / "model", hidden_size=256, num_attention_heads=4, num_key_value_heads=2)


def request_of(folder: Path, model: Path, *, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    from tuneyard.catalog import local_sku

    text = write_text(folder / "text.jsonl")
    fields = {"data": {"source": str(text), "maxLength": 64, "validationFraction": 0.1}, **task}
    settings = {"sku": local_sku(), "precision": "bf16", **(plan or {})}
    return train_request(folder, train_task(model, text, **fields), cpu_plan(**settings))


def losses_of(request: TrainRequest) -> list[float]:
    return train(request).losses


def test_bf16_trains_and_reports_what_it_used(model: Path, tmp_path: Path) -> None:
    result = train(request_of(tmp_path, model))

    assert result.losses[-1] < result.losses[0]
    assert 0 < result.peak_memory_gb[0] < 10
    assert 0 < result.mfu < 1
    assert sum(result.split.values()) > 0


def test_fp32_on_the_gpu_gives_the_losses_of_the_cpu(model: Path, tmp_path: Path) -> None:
    request = request_of(tmp_path / "cpu", model, plan={"sku": "cpu", "precision": "fp32"})
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        on_cpu = other.submit(losses_of, request).result()

    on_gpu = train(request_of(tmp_path / "gpu", model, plan={"precision": "fp32"}))

    assert on_gpu.losses == pytest.approx(on_cpu, rel=1e-2)


def test_rows_of_several_samples_have_the_losses_of_eager(model: Path, tmp_path: Path) -> None:
    """A packed row has a mask, which takes another path through torch than a row of one sample."""
    data = {"source": str(write_text(tmp_path / "text.jsonl")), "maxLength": 256, "pack": True}

    eager = train(request_of(tmp_path / "eager", model, plan={"attention": "eager"}, data=data))
    packed = train(request_of(tmp_path / "sdpa", model, data=data))

    assert packed.losses == pytest.approx(eager.losses, rel=1e-2)


@pytest.mark.parametrize("pack", [False, True])
def test_flash_attention_agrees_with_eager(pack: bool, model: Path, tmp_path: Path) -> None:
    data = {"source": str(write_text(tmp_path / "text.jsonl")), "maxLength": 64, "pack": pack}

    eager = train(request_of(tmp_path / "eager", model, plan={"attention": "eager"}, data=data))
    flash = train(request_of(tmp_path / "flash", model, plan={"attention": "flash"}, data=data))

    assert flash.losses == pytest.approx(eager.losses, rel=1e-2)


@needs("bitsandbytes")
@needs("peft")
def test_qlora_learns_in_four_bits(model: Path, tmp_path: Path) -> None:
    result = train(request_of(tmp_path, model, method={"qlora": {"rank": 8}}, optimizer={"learningRate": 1e-2}))

    assert result.losses[-1] < result.losses[0]


@needs("deepspeed")
@pytest.mark.parametrize("plan", [{"zero": 2}, {"zero": 3}, {"zero": 2, "offload_optimizer": "cpu"}], ids=["2", "3", "2 with offload"])
def test_deepspeed_gives_the_losses_of_plain_training(plan: dict[str, Any], model: Path, tmp_path: Path) -> None:
    plain = train(request_of(tmp_path / "plain", model))

    result = train(request_of(tmp_path / "zero", model, plan=plan))

    assert result.losses == pytest.approx(plain.losses, rel=2e-2)


@needs("liger_kernel")
def test_liger_kernels_change_no_loss(model: Path, tmp_path: Path) -> None:
    plain = train(request_of(tmp_path / "plain", model))

    result = train(request_of(tmp_path / "liger", model, plan={"liger": True}))

    assert result.losses == pytest.approx(plain.losses, rel=1e-2)


def test_recomputation_takes_less_memory(model: Path, tmp_path: Path) -> None:
    batch = {"batch": {"global": 32}, "plan": {"micro_batch": 32, "grad_accum": 1}}
    kept = train(request_of(tmp_path / "kept", model, **batch))

    recomputed = train(request_of(tmp_path / "recomputed", model, batch=batch["batch"], plan={**batch["plan"], "recompute": True}))

    assert recomputed.peak_memory_gb[0] < kept.peak_memory_gb[0]
    assert recomputed.losses == pytest.approx(kept.losses, rel=1e-2)


def test_a_stop_and_a_resume_give_the_losses_of_one_run(model: Path, tmp_path: Path) -> None:
    whole = train(request_of(tmp_path, model, plan={"precision": "fp32"}, checkpoint={"everySteps": 2, "keep": 5}))

    shutil.rmtree(tmp_path / "out" / "checkpoints" / "step-6")

    resumed = train(request_of(tmp_path, model, plan={"precision": "fp32"}, checkpoint={"everySteps": 2, "keep": 5}))

    assert resumed.resumed_from == 4
    assert resumed.losses == pytest.approx(whole.losses, rel=1e-4)
