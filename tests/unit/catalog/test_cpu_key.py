"""Which machines share a measured peak of `cpu`."""

from __future__ import annotations

import pytest

from tuneyard.catalog import cpu


@pytest.mark.parametrize("part", ["cpu_model", "usable_cores", "_matmul_library"])
def test_another_cpu_number_of_cores_or_version_of_torch_is_measured_anew(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cpu.machine_key()
    monkeypatch.setattr(cpu, part, lambda: "another")
    assert cpu.machine_key() != before
