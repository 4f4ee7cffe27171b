"""Streamed data in training: what a report says of them, and an error in a loader's process, told in its own words."""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, sentences, train_request, train_task
from tests.integration.training.conftest import Material

from tuneyard.api import BadInput
from tuneyard.data.stream import splits, windows
from tuneyard.planning import past_rates
from tuneyard.tracking import Report, bottleneck_of
from tuneyard.tracking.bottleneck import stall_of
from tuneyard.tracking.events import Event, Step
from tuneyard.tracking.report_page import render
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
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows, "_FIRST_BYTES", 2048)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    texts, path = sentences(200), tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} {texts[i % 200]}"}) + "\n" for i in range(120)))
    found = []
    for streaming in (True, False):
        data = {"source": str(path), "maxLength": 64, "pack": pack, "validationFraction": 0.1, "streaming": streaming}
        task = train_task(material.model, material.text, data=data, steps=18 if not pack else 13)
        found.append(train(train_request(tmp_path / f"run-{streaming}", task, cpu_plan())))
    streamed, prepared = found
    assert prepared.details["epochs"] > 1.1
    assert streamed.losses == prepared.losses


def test_a_report_says_what_making_rows_took_and_what_steps_waited_for(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank makes all rows itself, between its steps."""
    monkeypatch.setattr(splits, "LEAST_SPLIT_BYTES", 20_000)
    monkeypatch.setattr(splits, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    texts, path = sentences(200), tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} {texts[i % 200]}"}) + "\n" for i in range(4000)))
    data = {"source": str(path), "maxLength": 64, "streaming": True, "workers": 0}
    task = train_task(material.model, material.text, data=data, objective="clm", steps=30, checkpoint={"everySteps": 100})
    heard: list[Event] = []
    result = train(train_request(tmp_path / "run", task, cpu_plan()), emit=heard.append)

    stream, found = result.details["stream"], result.details["bottleneck"]
    assert set(stream["seconds"]) == {"storage", "decoding", "tokenising", "packing"}
    assert stream["tokens"] == result.details["data"]["tokens"] > 0
    assert result.split["data"] > 0
    assert found == asdict(bottleneck_of(result.split, stream))
    assert found["stall"] == pytest.approx(stall_of(result.split))
    assert found["sentence"].startswith(f"steps waited for rows {found['stall']:.1%} of the time")
    assert found["cause"] in {*stream["seconds"], "trainer"}
    waits = [event.data_share for event in heard if isinstance(event, Step)]
    assert len(waits) == 30
    assert max(waits) > 0

    report = Report(job="job", status="succeeded", tasks={"train": {"kind": "train", "status": "succeeded", **asdict(result)}})
    assert found["sentence"] in html.unescape(render(report))
    assert past_rates([{"result": asdict(result)}]).keys() <= {"text"}
