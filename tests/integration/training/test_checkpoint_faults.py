"""What must not happen to checkpoints: two jobs on one output, an attempt that comes back from the dead, storage that is away."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import checkpoint, committed, entries_of
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.servers.faults import S3Proxy
from tests.servers.installed import S3

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import CommitLog, Fenced, Holder, acquire, open_store
from tuneyard.tracking.events import Checkpointed, Event, Step, Warned
from tuneyard.training import TrainRequest, train
from tuneyard.training.checkpoint.layout import LOG


def request_of(folder: Path, material: Material, **changes: Any) -> TrainRequest:
    return train_request(folder, train_task(material.model, material.text, checkpoint={"everySteps": 2, "keep": 9}), **changes)


def after_step(step: int, action: Callable[[], None]) -> Callable[[Event], None]:
    """A listener that acts once, when `step` is over."""

    def emit(event: Event) -> None:
        if isinstance(event, Step) and event.step == step:
            action()

    return emit


def test_a_second_job_on_the_same_output_is_refused_and_told_who_is_there(material: Material, tmp_path: Path) -> None:
    first = acquire(open_store(str(tmp_path / "out")), LOG, Holder.this_process(job="nightly", attempt=1, run="one"))

    with pytest.raises(BadInput, match="in use by nightly, attempt 1, process") as refused:
        train(request_of(tmp_path, material))

    assert "--out" in refused.value.next_step
    assert not (tmp_path / "out" / "model").exists()
    first.close()
    assert train(request_of(tmp_path, material)).status == "succeeded"


def test_an_attempt_that_was_replaced_commits_nothing_more(material: Material, tmp_path: Path) -> None:
    output = tmp_path / "out"

    def successor() -> None:
        fence = CommitLog(open_store(str(output)), LOG).open({"job": "successor", "attempt": 2, "host": "elsewhere"})
        fence.commit(3, "checkpoints/step-3.9", "0" * 64)

    with pytest.raises(Fenced, match="successor, attempt 2, on elsewhere has taken over"):
        train(request_of(tmp_path, material), emit=after_step(3, successor))

    assert committed(output)[-1] == 3
    assert not (output / "model").exists()
    assert [entry["kind"] for entry in entries_of(output)][-2:] == ["open", "commit"]


def test_a_later_attempt_of_the_same_run_need_not_wait(material: Material, tmp_path: Path) -> None:
    acquire(open_store(str(tmp_path / "out")), LOG, Holder("test", 1, "one", "lost-machine", 1, "boot/1"))

    assert train(request_of(tmp_path, material, run="one", attempt=2)).status == "succeeded"


def test_a_checkpoint_of_a_newer_version_is_refused_not_skipped(material: Material, tmp_path: Path) -> None:
    train(request_of(tmp_path, material))
    output = tmp_path / "out"
    manifest = checkpoint(output, 6) / "manifest.json"
    values = json.loads(manifest.read_text())
    values["extra"]["checkpoint"] = 99
    manifest.write_text(json.dumps(values))
    for entry in (output / "checkpoints/log").glob("*.json"):
        content = json.loads(entry.read_text())
        if content.get("step") == 6:
            entry.write_text(json.dumps({**content, "sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()}))

    with pytest.raises(BadInput, match="format 99, written by a newer Tuneyard"):
        train(request_of(tmp_path, material))


def test_without_resume_what_was_committed_counts_no_longer(material: Material, tmp_path: Path) -> None:
    whole = train(request_of(tmp_path, material))

    again = train(request_of(tmp_path, material, resume=False))

    assert again.resumed_from == 0
    assert again.losses == whole.losses
    assert committed(tmp_path / "out") == [2, 4, 6]


def test_s3_that_answers_503_in_the_middle_of_a_save_costs_no_step(
    s3: S3, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = S3Proxy(s3.port)
    with proxy.listening() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        output = f"s3://{s3.bucket}/away"
        events: list[Event] = []

        def emit(event: Event) -> None:
            events.append(event)
            if isinstance(event, Step) and event.step == 2:
                proxy.away_for(8)

        result = train(request_of(tmp_path, material, output=output), emit=emit)

        assert proxy.refused > 0
        assert result.status == "succeeded"
        steps = [event.step for event in events if isinstance(event, Checkpointed)]
        assert steps[-1] == 6
        assert all("still being written" in event.message for event in events if isinstance(event, Warned))
        assert train(request_of(tmp_path / "again", material, output=output)).resumed_from == 6


@pytest.mark.parametrize("refused", ["step-6.1/manifest.json", "step-6.1/rank-00000-00000.safetensors"])
def test_s3_that_is_away_at_a_resume_is_not_taken_for_damage(
    refused: str, s3: S3, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuneyard.storage.object_store.RETRY_TOTAL_S", 1.0)
    proxy = S3Proxy(s3.port)
    with proxy.listening() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        output = f"s3://{s3.bucket}/{refused.replace('/', '-')}"
        train(request_of(tmp_path, material, output=output))
        proxy.refused_path = refused

        with pytest.raises(StorageError):
            train(request_of(tmp_path / "again", material, output=output))

        proxy.refused_path = ""
        assert CommitLog(open_store(output), LOG).read().last_step == 6
        assert train(request_of(tmp_path / "again", material, output=output)).resumed_from == 6
        assert not list((tmp_path / "again").rglob("step-6.1/*"))


def test_zero_plan_is_recorded_with_the_checkpoint(material: Material, tmp_path: Path) -> None:
    train(train_request(tmp_path, train_task(material.model, material.text), cpu_plan(zero=2)))

    manifest = json.loads((checkpoint(tmp_path / "out", 6) / "manifest.json").read_text())

    assert manifest["extra"]["layout"] == {"workers": 1, "zero": 2}
    assert manifest["extra"]["row"] == 6 * 8
