"""The `cpu` SKU is measured on this machine, once, and read from the cache after that; and what measures GPUs runs on its processors."""

from pathlib import Path

import pytest
import torch

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu, keep, known_config, measure, shape_from_config
from tuneyard.catalog.measured import entry_from, measure_gpu
from tuneyard.planning import resolve


def test_the_cpu_is_measured_once_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tuneyard.catalog.cpu._is_quiet", lambda: True)
    first = gpu("cpu")
    assert set(first.peak_flops) == {"fp32", "bf16"}
    assert 1e8 < first.peak_flops["fp32"] < 1e14
    assert first.memory_bandwidth_gb_s > 0.1

    monkeypatch.setattr("tuneyard.catalog.cpu._measure", lambda _cores: pytest.fail("measured again"))
    assert gpu("cpu") == first
    assert len(list((tmp_path / "tuneyard").glob("cpu-*.json"))) == 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few repeats: what is measured does not matter here."""
    monkeypatch.setattr(measure, "REPEAT_S", 0.01)


@pytest.mark.usefixtures("quick")
def test_what_measures_gpus_runs_on_processors_and_its_result_is_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    allowed = torch.backends.cuda.matmul.allow_tf32
    found = measure.measured_rates(measure.Bench(torch.device("cpu"), (32, 64), 2**20))
    assert torch.backends.cuda.matmul.allow_tf32 == allowed
    assert {"fp32", "fp16"} <= set(found["peak_flops"]) <= {"fp32", "tf32", "fp16", "bf16", "fp8"}
    assert all(rate > 0 for rate in found["peak_flops"].values())
    assert min(found["memory_bandwidth_gb_s"], found["pcie_gb_s"], found["link_gb_s"]) > 0

    device = {"name": "NVIDIA GeForce RTX 9090", "vendor": "nvidia", "architecture": "sm130", "memory_gb": 51.5, "library": "torch"}
    assert keep("rtx-9090-48gb", entry_from("rtx-9090-48gb", device | found))
    kind = gpu("rtx-9090-48gb")
    assert kind.basis == "measured"
    task = TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 8}})
    plan = resolve(task, shape_from_config(known_config("Qwen/Qwen2.5-0.5B") or {}), kind, 1)
    assert plan.speed is not None
    assert 0 < plan.speed.mfu < 1


@pytest.mark.usefixtures("quick")
def test_a_copy_between_devices_counts_once_and_within_one_twice() -> None:
    bench = measure.Bench(torch.device("cpu"), (32,), 2**20)
    assert bench.copy_gb_s(torch.device("cpu")) > 0
    assert bench.seconds(lambda: None) < 0.01


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_torch_does_not_see_is_said_so() -> None:
    with pytest.raises(BadInput, match=r"rtx-9090-48gb cannot be measured: RuntimeError: torch sees no GPU.*\n.*gpus.yaml"):
        measure_gpu("rtx-9090-48gb")
