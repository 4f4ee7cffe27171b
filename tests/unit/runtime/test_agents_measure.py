"""Peaks that are known by measurement alone: one machine of a kind measures, all others of a job take it over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.catalog.test_other_gpus import MEASURED

from tuneyard.catalog import gpu, needs_measuring
from tuneyard.catalog.gpu_entries import entries_of
from tuneyard.catalog.measured import entry_from, keep_measurement, shown
from tuneyard.runtime.nodes.agent import LogTarget, NodeAgent


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds that were measured, in order."""
    asked: list[str] = []

    def measure(sku: str) -> dict[str, Any]:
        asked.append(sku)
        return entry_from(sku, MEASURED)

    monkeypatch.setattr("tuneyard.catalog.measured.new_measurement", measure)
    return asked


def on_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeAgent:
    """An agent on a machine that has kept nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    return NodeAgent(LogTarget(str(tmp_path / "output"), "train", 1, ()))


def test_a_card_that_the_catalog_lacks_is_measured_once_per_job(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needs_measuring("big-cards")
    found = on_machine("first", tmp_path, monkeypatch).measured("big-cards")
    assert on_machine("second", tmp_path, monkeypatch).measured("big-cards") == found
    assert measured == ["big-cards"]
    assert gpu("big-cards").peak_flops["bf16"] == 205e12  # on the second machine, for its ranks
    assert (tmp_path / "output" / "machines" / "gpu-big-cards.json").exists()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "head"))  # which sees no GPU, and plans
    assert keep_measurement("big-cards", found)
    assert gpu("big-cards").basis == "measured"


def test_what_is_broken_in_the_output_is_measured_again(tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "output" / "machines" / "gpu-big-cards.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"name": "big-cards", "memoryGb": 0}))
    on_machine("first", tmp_path, monkeypatch).measured("big-cards")
    assert measured == ["big-cards"]
    assert json.loads(file.read_text())["measured"] is True


def test_kinds_of_the_catalog_are_not_measured() -> None:
    assert needs_measuring("cpu")
    assert not needs_measuring("H100")
    assert not needs_measuring("NVIDIA-GeForce-RTX-4090")


def test_what_was_measured_can_be_given_to_a_hub_as_it_is_said() -> None:
    said = shown(entry_from("big-cards", MEASURED))
    assert said.startswith("the catalog lacks big-cards, which was measured: fp32 100, fp16 210, bf16 205 TFLOPS, memory 1,700 GB/s; a hub")
    (entry,) = entries_of(f"gpus: [{said[said.index('{') :]}]", "values.yaml")
    assert entry.gpu("").peak_flops["bf16"] == 205e12
    assert len(said) < 1000
