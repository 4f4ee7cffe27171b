"""What is said while rows are prepared: how far, how long, and which setting asks for it. Also by the processes that wait for another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import TrainData
from tuneyard.data import preparation_progress
from tuneyard.data.cache import TOLD, cached_folder
from tuneyard.data.preparation_progress import Progress, why_prepared
from tuneyard.data.stream.splits import Piece, Split
from tuneyard.data.tokens import Encoded
from tuneyard.tracking import Event, Stage, StageProgress
from tuneyard.tracking.progress.words import stage_words

SPLITS = [Split(number, (Piece(0, 0, 0, 1_000_000),)) for number in range(100)]


def said(progress: Progress, clock: list[float], heard: list[Event], *, limit: int | None = None) -> list[str]:
    """The words of a preparation that takes a second for each MB, and three for the first."""
    progress.begin(SPLITS, limit)
    for number in range(100):
        clock[0] += 1.0 if number else 3.0
        progress.made(Encoded(samples=10, splits=[number]))
    progress.end()
    stages = [event for event in heard if isinstance(event, Stage)]
    return [stage_words(StageProgress(stage.name, stage.done, stage.of, stage.unit, stage.left_s)) for stage in stages]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(preparation_progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_follows_from_the_pace_and_the_reason_is_told_once(clock: list[float]) -> None:
    heard: list[Event] = []
    words = said(Progress(heard.append, "t", "why"), clock, heard)
    assert words[:2] == ["tokenising 0/100 MB", "tokenising 0/100 MB"]
    assert words[3] == "all rows are made before the first step, in about 98 s more: why"
    assert words[4] == "tokenising 3/100 MB, about 1:37 left"
    assert words[-1] == "tokenising 100/100 MB"
    assert sum("before the first step" in each for each in words) == 1


def test_a_limit_is_counted_in_samples(clock: list[float]) -> None:
    heard: list[Event] = []
    words = said(Progress(heard.append, "t", ""), clock, heard, limit=1000)
    assert words[0] == "tokenising 0/1,000 samples"
    assert words[4].startswith("tokenising 40/1,000 samples, about ")


@pytest.mark.parametrize(
    ("data", "steps", "why"),
    [
        ({"limit": 9}, 5, "data.limit asks for it"),
        ({"streaming": False}, 5, "data.streaming: false asks for it"),
        ({}, None, "`epochs` becomes steps by their exact number (with `steps` in place of `epochs`"),
        ({}, 5, ""),
    ],
)
def test_the_setting_that_asks_for_the_wait_is_named(data: dict[str, Any], steps: int | None, why: str) -> None:
    found = why_prepared(TrainData.model_validate({"source": "x", **data}), steps)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_a_process_that_waits_tells_what_the_other_one_says(tmp_path: Path) -> None:
    """The process that prepares may be any rank, and people see the events of one."""
    heard, was_heard, builds = list[Event](), threading.Event(), threading.Event()
    waiting = Progress(heard.append, "t", "")

    def build(folder: Path) -> None:
        progress = Progress(lambda _: None, "other", "")
        progress.tell_in(folder / TOLD)
        progress.begin(SPLITS, None)
        builds.set()
        assert was_heard.wait(60)

    def on_told(words: str) -> None:
        waiting.heard(words)
        was_heard.set()

    other = threading.Thread(target=cached_folder, args=(tmp_path, {"key": 1}, build))
    other.start()
    assert builds.wait(60)
    entry, there = cached_folder(tmp_path, {"key": 1}, build, on_told=on_told)
    other.join()
    assert there
    assert heard == [Stage(task="t", name="tokenising", done=0.0, of=100.0, unit="MB")]
    assert [path.name for path in entry.iterdir()] == ["entry.json"]
