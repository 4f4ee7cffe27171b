"""Delivery to trackers that are slow, fail, or hang: the job neither waits nor ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.builders.reports import make_job, train_events

from tuneyard.api import Tensorboard
from tuneyard.tracking import Step, TaskEvent
from tuneyard.tracking.sink import Warnings
from tuneyard.tracking.trackers import Asked, TrackedRun, TrackerKind, Trackers, delivery


@dataclass
class Remembering:
    """A tracker that remembers its calls; each may raise or wait first."""

    before: Any = lambda _call: None
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def _do(self, call: str, value: Any) -> None:
        self.before(call)
        self.calls.append((call, value))

    def parameters(self, values: Mapping[str, Any]) -> None:
        self._do("parameters", values)

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:
        self._do("metrics", (axis, step, values))

    def note(self, name: str, text: str) -> None:
        self._do("note", (name, text))

    def flush(self) -> None:
        self._do("flush", None)

    def end(self, status: str) -> None:
        self._do("end", status)

    def losses(self) -> list[int]:
        return [value[1] for call, value in self.calls if call == "metrics" and "train/loss" in value[2]]


def track(
    tracker: Any, folder: Path, warnings: Warnings, *, keep: delivery.KeepFile | None = None, names: tuple[str, ...] = ("lines",)
) -> Trackers:
    def open_it(_settings: Any, run: TrackedRun) -> Any:
        run.folder.mkdir(parents=True, exist_ok=True)
        return tracker(run) if callable(tracker) else tracker

    kind = TrackerKind(title="Lines", extra="lines", open=open_it)
    return Trackers(make_job(), [Asked(name, kind, Tensorboard()) for name in names], folder, keep, warnings)


def run_job(trackers: Trackers) -> None:
    for event in train_events():
        trackers.record(event)
    trackers.record(TaskEvent(task="train", state="succeeded", kind="train", result={"mfu": 0.4}))
    trackers.close("failed", "401 for s3://key:hidden@bucket")


def test_a_tracker_gets_everything_in_order_and_its_end_last(tmp_path: Path) -> None:
    tracker, warnings = Remembering(), Warnings()
    run_job(track(tracker, tmp_path, warnings))

    assert tracker.losses() == list(range(1, 121))
    assert tracker.calls[0][0] == "parameters"
    assert tracker.calls[-2:] == [("note", ("message", "401 for s3://***@bucket")), ("end", "failed")]
    assert warnings.take() == []


def test_a_tracker_that_fails_now_and_then_is_one_warning_and_gets_the_rest(tmp_path: Path) -> None:
    chance = iter([True, False] * 1000)

    def sometimes(_call: str) -> None:
        if next(chance):
            raise RuntimeError("500 from https://user:hidden@tracker/api")

    tracker, warnings = Remembering(sometimes), Warnings()
    run_job(track(tracker, tmp_path, warnings))

    assert 50 <= len(tracker.losses()) < 120
    (message,) = warnings.take()
    assert message.startswith("Lines misses metrics: 500 from https://***@tracker/api")


def test_a_tracker_that_cannot_be_opened_is_one_warning(tmp_path: Path) -> None:
    def fail(_run: TrackedRun) -> Remembering:
        raise OSError("no such host\nand a traceback")

    warnings = Warnings()
    run_job(track(fail, tmp_path, warnings))

    assert warnings.take() == ["Lines gets no metrics: no such host. The job goes on; the report has them all"]


def test_trackers_that_hang_keep_the_job_for_one_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "END_LIMIT_S", 0.5)
    never, warnings = threading.Event(), Warnings()
    trackers = track(Remembering(lambda _call: never.wait(60) and None), tmp_path, warnings, names=("one", "two", "three"))

    began = time.monotonic()
    run_job(trackers)

    assert time.monotonic() - began < 20
    assert warnings.take() == ["Lines did not take all metrics within 0 s; the report has them all"] * 3
    never.set()


def test_steps_that_a_hanging_tracker_cannot_take_are_dropped_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MOST_WAITING", 10)
    begin, warnings = threading.Event(), Warnings()
    tracker = Remembering(lambda _call: begin.wait(60) and None)
    trackers = track(tracker, tmp_path, warnings)
    for event in train_events():
        trackers.record(event)
    begin.set()
    trackers.close("succeeded", "")

    assert 0 < len(tracker.losses()) < 20
    assert [message for message in warnings.take() if "misses steps" in message]
    assert tracker.calls[-1] == ("end", "succeeded")
    assert len([call for call, value in tracker.calls if call == "metrics" and "train/eval_loss" in value[2]]) == 3
    assert not [event for event in train_events(1) if isinstance(event, Step) and event.step > 1]


def test_files_are_copied_to_an_output_elsewhere_and_again_once_they_have_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FLUSH_S", 0.0)
    monkeypatch.setattr(delivery, "KEEP_S", 0.0)
    kept: list[tuple[str, bytes]] = []

    def write(run: TrackedRun) -> Remembering:
        (run.folder / "old").write_text("x")
        (run.folder / "inner").mkdir()
        (run.folder / "link").symlink_to("/etc/passwd")
        file = run.folder / "inner" / "events"

        def grow(call: str) -> None:
            with file.open("a") as target:
                target.write(f"{call}\n")

        return Remembering(grow)

    run_job(track(write, tmp_path, Warnings(), keep=lambda path, data: kept.append((path, data))))

    assert {path for path, _ in kept} == {"lines/old", "lines/inner/events"}
    assert len([path for path, _ in kept if path == "lines/old"]) == 1
    assert kept[-1][0] == "lines/inner/events"
    assert kept[-1][1].endswith(b"end\n")


def test_an_output_that_takes_no_file_is_one_warning(tmp_path: Path) -> None:
    def refuse(_path: str, _data: bytes) -> None:
        raise OSError("403 from the bucket")

    def write(run: TrackedRun) -> Remembering:
        (run.folder / "events").write_text("x")
        return Remembering()

    warnings = Warnings()
    run_job(track(write, tmp_path, warnings, keep=refuse))

    assert warnings.take() == ["Lines misses metrics: 403 from the bucket. The job goes on; the report has them all"]
