"""Which logs `tuneyard logs` shows, and how lines of several ranks are told apart."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.builders.hub_jobs import make_attempt, make_failed_attempt, make_hub_job, make_running

from tuneyard.api import Attempt, BadInput
from tuneyard.cli.logs.choice import LogChoice
from tuneyard.cli.logs.following import LogFollower
from tuneyard.cli.logs.printer import LogPrinter, speaker
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk, LogReader

THREE = {"phase": "Running", "attempts": [make_failed_attempt(1), make_attempt(2, phase="Succeeded"), make_attempt(3, "judge")]}


@pytest.mark.parametrize(
    ("choice", "status", "numbers"),
    [
        (LogChoice(), None, []),
        (LogChoice(), make_running(), [2]),
        (LogChoice(), THREE, [3]),
        (LogChoice(task="train"), THREE, [2]),
        (LogChoice(task="train", everything=True), THREE, [1, 2]),
        (LogChoice(everything=True), THREE, [1, 2, 3]),
        (LogChoice(attempt=1), THREE, [1]),
        (LogChoice(), {"phase": "Failed", "attempts": [make_failed_attempt(1), make_failed_attempt(2)]}, [2]),
        (LogChoice(), {"phase": "Running", "attempts": [make_attempt(1), make_attempt(2, "judge")]}, [1, 2]),
    ],
)
def test_what_runs_else_what_ran_last(choice: LogChoice, status: dict[str, object] | None, numbers: list[int]) -> None:
    assert [attempt.number for attempt in choice.attempts(make_hub_job(status))] == numbers


@pytest.mark.parametrize(
    ("choice", "cause", "next_step"),
    [
        (LogChoice(task="trian"), "has no task 'trian'", "did you mean train?"),
        (LogChoice(attempt=9), "has no attempt 9", "it has: 1, 2, 3"),
        (LogChoice(task="judge", attempt=1), "task judge of maps/support-bot has no attempt 1", "it has: 3"),
    ],
)
def test_what_there_is_not(choice: LogChoice, cause: str, next_step: str) -> None:
    with pytest.raises(BadInput) as refused:
        choice.attempts(make_hub_job(THREE))
    assert cause in refused.value.cause
    assert next_step in refused.value.next_step


@pytest.mark.parametrize(
    ("choice", "there", "chosen"),
    [
        (LogChoice(), ["driver", "rank-0"], ["driver", "rank-0"]),
        (LogChoice(rank=1), ["driver", "rank-0", "rank-1"], ["rank-1"]),
        (LogChoice(rank=0), ["driver", "engine-0"], ["engine-0"]),
        (LogChoice(source="driver"), ["driver", "rank-0"], ["driver"]),
        (LogChoice(rank=7), ["driver", "rank-0"], []),
    ],
)
def test_sources(choice: LogChoice, there: list[str], chosen: list[str]) -> None:
    assert choice.sources(there) == chosen


def test_lines_say_whose_they_are_and_progress_bars_what_they_showed_last() -> None:
    stream = io.StringIO()
    show = LogPrinter(stream, prefixed=True, coloured=False)
    show(speaker("train", "rank-1"), "one\n10%\r20%\r100%\n")
    show(speaker("train", "driver", 2), "two\n")
    assert stream.getvalue().splitlines() == ["[train rank 1] one", "[train rank 1] 100%", "[train attempt 2 driver] two"]


def test_each_speaker_keeps_its_colour() -> None:
    stream = io.StringIO()
    show = LogPrinter(stream, prefixed=True, coloured=True)
    for name in ("a", "b", "a"):
        show(name, "x\n")
    first, second, third = stream.getvalue().splitlines()
    assert first == third
    assert first.partition("[a]")[0] != second.partition("[b]")[0]


def test_a_single_source_is_shown_as_it_is() -> None:
    stream = io.StringIO()
    LogPrinter(stream, prefixed=False, coloured=True)("train rank 0", "one\ntwo\n")
    assert stream.getvalue() == "one\ntwo\n"


def test_following_shows_each_line_once_in_every_attempt(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    seen: list[str] = []
    follower = LogFollower(
        LogChoice(),
        lambda attempt: LogReader(store, attempt.task, attempt.number),
        lambda attempt, source, text: seen.append(f"{attempt.number} {source} {text.strip()}"),
        seen.append,
    )

    def write(attempt: int, source: str, number: int, text: str) -> None:
        store.create(Chunk("train", attempt, source, number).path, f"{text}\n".encode())

    def round_of(*attempts: Attempt) -> bool:
        return follower._round(make_hub_job({"phase": "Running", "attempts": [dict(attempt) for attempt in attempts]}))

    first = make_attempt(1)
    write(1, "rank-0", 1, "a")
    assert round_of(first)
    assert not round_of(first)
    write(1, "rank-0", 2, "b")
    write(1, "rank-1", 1, "c")
    assert round_of(first)
    write(2, "rank-0", 1, "d")
    write(1, "rank-1", 2, "last words")
    ended = make_attempt(1, phase="Failed", failure="NodeLost", endedAt="2026-11-21T12:01:00Z", cleaned=True)
    assert round_of(ended, make_attempt(2))
    assert not round_of(ended, make_attempt(2))
    assert seen == ["1 rank-0 a", "1 rank-0 b", "1 rank-1 c", "1 rank-1 last words", "2 rank-0 d"]
