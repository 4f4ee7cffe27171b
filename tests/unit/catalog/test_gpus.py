"""SKUs: their facts, their names, and which of them this machine is."""

import json
import stat
from pathlib import Path

import pytest

from tuneyard.api import BadInput
from tuneyard.catalog import gpu, known_skus, local_devices, local_sku
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.local import sku_of

GPUS = [sku for sku in known_skus() if sku != "cpu"]


@pytest.mark.parametrize("sku", GPUS)
def test_every_figure_has_a_source_and_is_plausible(sku: str) -> None:
    found = gpu(sku)
    assert found.sku == sku
    assert found.source
    assert f"{found.memory_gb:.0f}gb" in sku
    assert found.peak_flops["fp16"] > found.peak_flops["fp32"]
    assert ("bf16" in found.peak_flops) == found.has_bf16
    assert 300 <= found.memory_bandwidth_gb_s <= 8000
    assert found.link_gb_s >= found.pcie_gb_s


def test_peaks_are_dense() -> None:
    assert gpu("a100-80gb").peak_flops["bf16"] == 312e12
    assert gpu("h100-80gb").peak_flops["bf16"] == pytest.approx(989.4e12)


@pytest.mark.parametrize(("alias", "sku"), [("H100-SXM", "h100-80gb"), ("h200", "h200-141gb"), (" a10g ", "a10g-24gb")])
def test_aliases_and_case_are_understood(alias: str, sku: str) -> None:
    assert gpu(alias).sku == sku


def test_an_unknown_sku_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"unknown SKU 'h100-90gb'\n.*h100-80gb"):
        gpu("h100-90gb")


@pytest.mark.parametrize(("sku", "flash"), [("a100-40gb", True), ("l40s-48gb", True), ("t4-16gb", False), ("v100-32gb", False)])
def test_flash_attention_needs_ampere(sku: str, flash: bool) -> None:
    assert gpu(sku).has_flash is flash


def test_a_rank_has_a_gpu_to_itself_and_a_share_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = cached_cpu(tmp_path, monkeypatch)
    assert gpu("a100-80gb").rank_peak_flops("bf16", 8) == 312e12
    assert gpu(cpu).rank_peak_flops("fp32", 4) == 1e11
    with pytest.raises(BadInput, match="no peak for fp8"):
        gpu("a100-80gb").rank_peak_flops("fp8")


def cached_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`cpu`, as if it had been measured before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tuneyard.catalog.cpu._measure", lambda _cores: {"peak_flops": {"fp32": 4e11}, "memory_bandwidth_gb_s": 20.0})
    return "cpu"


def test_a_measurement_is_kept_and_a_broken_one_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = cached_cpu(tmp_path, monkeypatch)
    assert gpu(cpu).memory_gb == machine_memory_gb()
    (file,) = (tmp_path / "tuneyard").glob("cpu-*.json")
    kept = json.loads(file.read_text())
    assert kept["peak_flops"] == {"fp32": 4e11}

    file.write_text(json.dumps({**kept, "peak_flops": {"fp32": 1.0}}))
    assert gpu(cpu).peak_flops["fp32"] == 1.0
    file.write_text("{")
    assert gpu(cpu).peak_flops["fp32"] == 4e11


@pytest.mark.parametrize(
    ("name", "memory_mib", "sku"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("NVIDIA H100 PCIe", 81559, "h100-pcie-80gb"),
        ("NVIDIA H200", 143771, "h200-141gb"),
        ("NVIDIA B200", 183359, "b200-180gb"),
        ("NVIDIA L40S", 46068, "l40s-48gb"),
        ("NVIDIA A10G", 23028, "a10g-24gb"),
        ("Tesla T4", 15360, "t4-16gb"),
        ("Tesla V100-SXM2-32GB", 32510, "v100-32gb"),
    ],
)
def test_a_gpu_is_known_by_what_its_driver_reports(name: str, memory_mib: float, sku: str) -> None:
    assert sku_of(name, memory_mib) == sku


def test_a_gpu_that_is_not_in_the_catalog_is_named() -> None:
    with pytest.raises(BadInput, match="'NVIDIA GeForce RTX 3090' is not in the catalog"):
        sku_of("NVIDIA GeForce RTX 3090", 24576)


@pytest.fixture
def two_h100s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver answers for two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-a1, NVIDIA H100 80GB HBM3, 81559'\necho 'GPU-b2, NVIDIA H100 80GB HBM3, 81559'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_h100s")
@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("1", 1), ("GPU-b2", 1), ("0,1", 2), ("0,7,1", 1)])
def test_gpus_that_are_visible_are_found(visible: str | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices = local_devices()
    assert [device.sku for device in devices] == ["h100-80gb"] * count
    assert devices[0].memory_gb == pytest.approx(85.5, abs=0.1)


@pytest.mark.usefixtures("two_h100s")
@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_leave_a_cpu(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert local_sku() == "cpu"


def test_a_machine_without_a_driver_is_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_sku() == "cpu"
