"""Streamed data in training: an error in a loader's process is told in its own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.training.conftest import Material
from tests.models import cpu_plan, sentences, train_request, train_task

from tuneyard.api import BadInput
from tuneyard.data.stream import splits, windows
from tuneyard.tracking.events import Event, Step
from tuneyard.training import arguments, train


def test_data_that_change_while_loaders_read_them_are_told_as_that(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 100_000)
    monkeypatch.setattr(windows, "_FIRST_BYTES", 100_000)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    values = arguments.argument_values

    def with_loaders(*given: Any, **options: Any) -> dict[str, Any]:
        return values(*given, **options) | {"dataloader_num_workers": 2}

    monkeypatch.setattr(arguments, "argument_values", with_loaders)
    texts, path = sentences(200), tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} {texts[i % 200]}"}) + "\n" for i in range(20_000)))

    def emit(event: Event) -> None:
        if isinstance(event, Step) and event.step == 3:
            path.write_text(path.read_text())
            for shard in (tmp_path / "cache/shards").glob("*.shard"):
                shard.unlink()

    data = {"source": str(path), "maxLength": 64, "streaming": True, "workers": 0}
    task = train_task(material.model, material.text, data=data, steps=1000, checkpoint={"everySteps": 1000})
    with pytest.raises(BadInput, match=r"^\S+texts.jsonl: changed while it was being used"):
        train(train_request(tmp_path / "run", task, cpu_plan()), emit=emit)


@pytest.mark.parametrize("pack", [False, True])
def test_streamed_and_prepared_data_have_equal_losses(
    pack: bool, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, over several windows and a border between epochs."""
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 4096)
    monkeypatch.setattr(splits, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows, "_FIRST_BYTES", 4096)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    texts, path = sentences(200), tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} {texts[i % 200]}"}) + "\n" for i in range(600)))
    found = []
    for streaming in (True, False):
        data = {"source": str(path), "maxLength": 64, "pack": pack, "validationFraction": 0.1, "streaming": streaming}
        task = train_task(material.model, material.text, data=data, steps=90 if not pack else 60)
        found.append(train(train_request(tmp_path / f"run-{streaming}", task, cpu_plan())))
    streamed, prepared = found
    assert prepared.details["epochs"] > 1.1
    assert streamed.losses == prepared.losses
