"""GPUs that did not come with Tuneyard: given in a file of the user, or found on this machine and measured."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.catalog import (
    canonical_sku,
    entry_of,
    given_json,
    gpu,
    keep,
    known_skus,
    local_devices,
    local_sku,
    needs_measuring,
    rules_device,
)
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.gpu_entries import GpuEntry, entries_of, kept_kind
from tuneyard.catalog.gpu_kinds import GPU_KINDS
from tuneyard.federation import speed_factor

ENTRY = {
    "name": "rtx-9090-48gb",
    "aliases": ["9090"],
    "architecture": "sm130",
    "memoryGb": 48,
    "memoryBandwidthGbPerS": 2000,
    "peakTflops": {"fp32": 120, "tf32": 120, "fp16": 240, "bf16": 240},
}
MEASURED = {
    "name": "NVIDIA GeForce RTX 9090",
    "vendor": "nvidia",
    "architecture": "sm130",
    "memory_gb": 51.5,
    "library": "torch 9.9",
    "peak_flops": {"fp32": 100e12, "fp16": 210e12, "bf16": 205e12},
    "memory_bandwidth_gb_s": 1700.0,
    "pcie_gb_s": 90.0,
    "link_gb_s": 90.0,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has given and measured nothing yet, on a machine without GPUs."""
    for name in ("TUNEYARD_GPUS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def gives(home: Path, *entries: dict[str, Any]) -> Path:
    file = home / "config" / "tuneyard" / "gpus.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"gpus": list(entries)}))
    return file


def has_driver(home: Path, name: str, *lines: str) -> None:
    """A machine with a program of a driver that prints these lines."""
    program = home / "bin" / name
    program.parent.mkdir(exist_ok=True)
    text = "\n".join(lines)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n".replace("cat", "/bin/cat"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_a_kind_is_given_in_a_file(home: Path) -> None:
    file = gives(home, ENTRY)
    found = gpu("9090")
    assert (found.sku, found.basis, found.memory_gb, found.link_gb_s) == ("rtx-9090-48gb", "given", 48, 64)
    assert str(file) in found.source
    assert found.peak_flops["bf16"] == 240e12
    assert (found.has_flash, found.has_bf16) == (True, True)
    assert "rtx-9090-48gb" in known_skus()
    assert canonical_sku("NVIDIA GeForce RTX 9090 48GB") == "rtx-9090-48gb"


def test_a_file_may_correct_the_table(home: Path) -> None:
    gives(home, {**ENTRY, "name": "h100", "aliases": []})
    assert gpu("NVIDIA-H100-80GB-HBM3").peak_flops["bf16"] == gpu("h100").peak_flops["bf16"] == 240e12
    assert canonical_sku("h100") == "h100-80gb"
    assert known_skus().count("h100-80gb") == 1


def test_a_hub_gives_kinds_to_attempts_as_json(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gives(home, ENTRY)
    kind = gpu("9090")
    monkeypatch.setenv("TUNEYARD_GPUS", given_json([kind]))
    assert replace(gpu("9090"), source="") == replace(kind, source="")


def test_the_hub_knows_how_fast_a_given_kind_is(home: Path) -> None:
    gives(home, {**ENTRY, "name": "mi999", "peakTflops": {"fp32": 300, "bf16": 624}, "memoryBandwidthGbPerS": 4078})
    assert speed_factor("mi999") == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpus: [", r"is not YAML"),
        ("[]", r"does not hold a list under `gpus`"),
        ("kinds: []", r"does not hold a list under `gpus`"),
        ("gpus: {a: 1}", r"does not hold a list under `gpus`"),
        ("gpus: [{name: x}]", r"gpus\[0\].memoryGb: Field required"),
        ("gpus: [1]", r"gpus\[0\]: "),
        (yaml.safe_dump({"gpus": [{**ENTRY, "memoryGb": -1}]}), r"gpus\[0\].memoryGb"),
        (yaml.safe_dump({"gpus": [{**ENTRY, "memory": 1}]}), r"gpus\[0\].memory: Extra inputs"),
        (yaml.safe_dump({"gpus": [{**ENTRY, "peakTflops": {"bf16": 1}}]}), r"gpus\[0\].peakTflops: .*fp32 is missing"),
        (yaml.safe_dump({"gpus": [{**ENTRY, "peakTflops": {"fp32": 1, "int4": 1}}]}), r"gpus\[0\].peakTflops"),
        (yaml.safe_dump({"gpus": [{**ENTRY, "architecture": "ada"}]}), r"gpus\[0\].architecture"),
        (yaml.safe_dump({"gpus": [ENTRY, ENTRY]}), r"rtx-9090-48gb is there twice"),
        (yaml.safe_dump({"gpus": [{**ENTRY, "name": "cpu"}]}), r"cpu is no kind of GPU"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        entries_of(text, "gpus.yaml")


@given(st.text(max_size=200))
def test_no_text_is_too_odd(text: str) -> None:
    with suppress(BadInput):
        assert entries_of(text, "gpus.yaml") == []


@given(st.sampled_from(GPU_KINDS))
def test_an_entry_holds_all_of_a_kind(kind: Any) -> None:
    found = GpuEntry.model_validate_json(json.dumps(entry_of(kind))).gpu("")
    expected = replace(kind, source=f"{kind.source}, ", basis="given", peak_flops=pytest.approx(dict(kind.peak_flops)))
    assert replace(found, tf32_flops=None) == replace(expected, tf32_flops=None)
    assert found.tf32_flops == pytest.approx(kind.tf32_flops)


def has_rtx_9090(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine with a card that the catalog lacks; the measurements that were asked for."""
    has_driver(home, "nvidia-smi", "GPU-1, NVIDIA GeForce RTX 9090, 49140, 13.0")
    asked: list[list[str]] = []

    def measure(arguments: list[str], **_more: object) -> dict[str, Any]:
        asked.append(arguments)
        return MEASURED

    monkeypatch.setattr("tuneyard.catalog.measured.run_measurement", measure)
    return asked


def test_an_unknown_card_is_measured_once_and_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = has_rtx_9090(home, monkeypatch)
    assert local_sku() == "rtx-9090-48gb"
    assert needs_measuring("rtx-9090-48gb")
    assert rules_device("rtx-9090-48gb").flash  # by its architecture, before anything is measured
    assert not asked

    found = gpu("rtx-9090-48gb")
    assert (found.basis, found.peak_flops["bf16"], found.pcie_gb_s) == ("measured", 205e12, 90.0)
    assert gpu("rtx-9090-48gb").basis == "measured"
    assert asked == [["gpu"]]
    assert kept_kind("rtx-9090-48gb") is not None

    (file,) = (home / "cache" / "tuneyard").glob("gpu-*.json")
    file.write_text("{")
    gpu("rtx-9090-48gb")
    assert len(asked) == 2


def test_another_machine_can_keep_what_was_measured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_rtx_9090(home, monkeypatch)
    entry = entry_of(gpu("rtx-9090-48gb"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="unknown SKU 'rtx-9090-48gb'"):
        gpu("rtx-9090-48gb")
    assert keep("rtx-9090-48gb", entry)
    assert gpu("rtx-9090-48gb").peak_flops["bf16"] == 205e12
    assert not keep("rtx-9090-48gb", {"memoryGb": 1})


def test_a_card_that_is_known_is_not_measured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = has_rtx_9090(home, monkeypatch)
    has_driver(home, "nvidia-smi", "GPU-1, NVIDIA GeForce RTX 4090, 24564, 8.9")
    assert gpu(local_sku()).basis == "datasheet"
    assert local_sku() == "rtx-4090-24gb"
    assert not asked


def test_a_driver_that_is_too_old_for_compute_capability_still_names_its_cards(home: Path) -> None:
    script = 'case "$1" in *compute_cap*) exit 2;; esac; echo "GPU-1, Tesla T4, 15360"'
    program = home / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert local_sku() == "t4-16gb"


def test_a_gpu_that_shares_the_machines_memory_reports_none(home: Path) -> None:
    has_driver(home, "nvidia-smi", "GPU-1, NVIDIA GB99, [N/A], 12.1")
    (device,) = local_devices()
    assert device.memory_gb == machine_memory_gb()
    assert device.sku.startswith("gb99-")


ROCM = {"Card Series": "AMD Instinct MI300X", "Card Model": "0x74a1", "GFX Version": "gfx942", "VRAM Total Memory (B)": "206141652992"}


@pytest.mark.parametrize(
    ("change", "sku"),
    [
        ({}, "mi300x-192gb"),
        ({"Card Series": "0x74a1", "Card Model": "AMD Instinct MI300X OAM"}, "mi300x-192gb"),
        ({"Card Series": "N/A"}, "mi300x-192gb"),
        ({"Card Series": "AMD Instinct MI999", "Card Model": "0x9999", "GFX Version": "gfx999"}, "mi999-192gb"),
    ],
)
def test_gpus_of_amd_are_found(home: Path, change: dict[str, str], sku: str) -> None:
    has_driver(home, "rocm-smi", json.dumps({f"card{number}": ROCM | change for number in range(2)}))
    assert [device.sku for device in local_devices()] == [sku, sku]
    assert local_devices()[0].vendor == "amd"


@pytest.mark.parametrize(
    ("variable", "value", "count"),
    [("HIP_VISIBLE_DEVICES", "1", 1), ("ROCR_VISIBLE_DEVICES", "0,1", 2), ("HIP_VISIBLE_DEVICES", "0,5,1", 1)],
)
def test_gpus_of_amd_can_be_hidden(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, count: int) -> None:
    has_driver(home, "rocm-smi", json.dumps({"card0": ROCM, "card1": ROCM}))
    monkeypatch.setenv(variable, value)
    assert len(local_devices()) == count


@pytest.mark.parametrize("output", ["", "not json", "[]", "{}", '{"card0": 1}', '{"card0": {"Card Series": "x"}}'])
def test_a_driver_that_says_nothing_leaves_a_cpu(home: Path, output: str) -> None:
    has_driver(home, "rocm-smi", output)
    assert local_sku() == "cpu"


def test_what_cannot_be_measured_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that measures finds no GPU in torch, or no torch."""
    has_driver(home, "nvidia-smi", "GPU-1, NVIDIA GeForce RTX 9090, 49140, 13.0")
    fails: Callable[..., Any] = pytest.fail
    monkeypatch.setattr("tuneyard.catalog.measured.keep", fails)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(BadInput, match=r"the peak of the GPU rtx-9090-48gb cannot be measured: no message\n.*gpus.yaml"):
        gpu("rtx-9090-48gb")
