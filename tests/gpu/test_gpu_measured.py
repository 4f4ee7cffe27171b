"""What is measured of a GPU. Skipped, loudly, where there is none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from tuneyard.catalog import gpu, local_devices
from tuneyard.catalog.gpu_entries import GpuEntry
from tuneyard.catalog.measured import measure_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: nothing of tests/gpu was tested here")]


def test_the_driver_and_torch_name_the_same_kind() -> None:
    device = local_devices()[0]
    properties = torch.cuda.get_device_properties(0)
    assert device.memory_gb == pytest.approx(properties.total_memory / 1e9, rel=0.08)
    if torch.version.hip is None:
        assert device.architecture == f"sm{properties.major}{properties.minor}"


def test_a_measured_kind_is_near_the_data_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matmuls and copies reach between a third and all of what is printed; links are told to within a factor of three."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device = local_devices()[0]
    if not device.listed:
        pytest.skip(f"{device.name} IS NOT IN THE CATALOG: nothing to compare with")
    printed = gpu(device.sku)

    began = time.monotonic()
    found = GpuEntry.model_validate(measure_gpu("measured")).gpu("")
    took_s = time.monotonic() - began

    assert found.basis == "measured"
    assert found.architecture == printed.architecture
    assert found.has_flash == printed.has_flash
    assert found.has_bf16 == printed.has_bf16
    for dtype, peak in found.peak_flops.items():
        assert 0.33 <= peak / printed.peak_flops[dtype] <= 1.15, dtype  # cards boost above the clock that is printed
    assert (found.tf32_flops is None) == (printed.tf32_flops is None)
    assert 0.5 <= found.memory_bandwidth_gb_s / printed.memory_bandwidth_gb_s <= 1.05
    assert found.pcie_gb_s <= 1.05 * printed.pcie_gb_s
    print(f"{device.name}: measured in {took_s:.0f} s")


def test_ray_hides_no_gpu_from_what_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent has no GPU of its own, and Ray empties the variable that names it."""
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    assert measure_gpu("measured")["memoryGb"] > 1
