"""The `cpu` SKU is measured on this machine, once, and read from the user's cache folder after that."""

import time
from pathlib import Path

import pytest

from tuneyard.catalog import gpu


def test_the_cpu_is_measured_once_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = gpu("cpu")
    assert set(first.peak_flops) == {"fp32", "bf16"}
    assert 1e8 < first.peak_flops["fp32"] < 1e14
    assert first.memory_bandwidth_gb_s > 0.1

    start = time.perf_counter()
    assert gpu("cpu") == first
    assert time.perf_counter() - start < 2
    assert len(list((tmp_path / "tuneyard").glob("cpu-*.json"))) == 1
