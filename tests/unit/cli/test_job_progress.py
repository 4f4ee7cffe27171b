"""What `tuneyard wait` says while a job goes on, away from a terminal and on one."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from tests.builders.hub_jobs import make_attempt, make_failed_attempt, make_hub_job, make_progress, make_running

from tuneyard.api import TuneyardError
from tuneyard.cli.progress.live import LiveJob
from tuneyard.cli.progress.plain import PlainJob


def said(*statuses: dict[str, Any] | None, every_s: float = 10.0) -> list[str]:
    stream = io.StringIO()
    view = PlainJob(stream, every_s=every_s)
    for status in statuses:
        view(make_hub_job(status))
    return stream.getvalue().splitlines()


def running(step: int) -> dict[str, Any]:
    return make_running() | {"tasks": [{"name": "train", "phase": "Running", "progress": make_progress(step)}]}


def test_each_thing_that_happens_is_one_line() -> None:
    done = {"phase": "Succeeded", "message": "all tasks succeeded", "tasks": [{"name": "train", "phase": "Succeeded"}]}
    assert said(None, {"phase": "Queued", "message": "no room"}, make_running(), done) == [
        "maps/support-bot  Pending",
        "maps/support-bot  Queued  no room",
        "maps/support-bot  Running  train runs on gcp-h100",
        "train  attempt 1 failed after 1:40: NodeLost on n7: rank 3 stopped answering",
        "train  attempt 2 started on gcp-h100, 16 x h100-80gb on 2 nodes",
        "train  step 40/120  loss 1.832  52,300 tokens/s  MFU 41.2%  ETA 1:12:00",
        "maps/support-bot  Succeeded  all tasks succeeded",
        "train  succeeded",
    ]


def test_what_happens_all_the_time_is_said_now_and_then() -> None:
    assert len(said(running(1), running(2), running(3))) == 4
    assert len(said(running(1), running(2), running(3), every_s=0.0)) == 6


def test_nothing_new_says_nothing() -> None:
    assert len(said(make_running(), make_running(), every_s=0.0)) == 4


def test_a_second_attempt_is_said_at_once() -> None:
    first = make_running() | {"attempts": [make_attempt(1)]}
    lines = said(first, make_running() | {"attempts": [make_failed_attempt(1), make_attempt(2)]})
    assert [line.split("  ")[1] for line in lines[3:]] == [
        "attempt 1 failed after 1:40: NodeLost on n7: rank 3 stopped answering",
        "attempt 2 started on gcp-h100, 16 x h100-80gb on 2 nodes",
        "checkpoint of step 20 committed",
        "step 40/120",
    ]


def test_a_warning_and_a_checkpoint_are_said_as_on_this_machine() -> None:
    later = running(45)
    later["tasks"][0]["message"] = "rank 1 is slow"
    later["attempts"] = [make_failed_attempt(1), make_attempt(2, resumedFrom=20, lastStep=45, checkpointStep=44)]
    assert said(running(44), later)[-2:] == ["train  checkpoint of step 44 committed", "train  warning: rank 1 is slow"]


def test_the_predicted_start_is_said_once_it_is_known() -> None:
    waiting = {"phase": "Queued", "message": "no room"}
    lines = said(waiting, waiting | {"expectedStart": "2020-11-21T12:35:00Z"}, waiting | {"expectedStart": "2020-11-21T12:40:00Z"})
    assert lines[1:] == ["maps/support-bot  expected start: about 2020-11-21 12:35 UTC"]


def test_an_outage_begins_and_ends_once() -> None:
    stream = io.StringIO()
    view = PlainJob(stream)
    view(make_hub_job())
    view.away(TuneyardError("the hub does not answer: connection refused"))
    view(make_hub_job())
    assert stream.getvalue().splitlines()[1:] == ["the hub does not answer: connection refused; waiting for it", "the hub answers again"]


def test_a_task_that_waits_again_shows_why_and_when_and_no_time_of_its_last_attempt() -> None:
    console = Console(file=io.StringIO(), width=140)
    view = LiveJob(console)
    status = {"phase": "Queued", "message": "no room", "expectedStart": "2020-11-21T12:35:00Z", "attempts": [make_failed_attempt(1)]}
    view(make_hub_job(status | {"tasks": [{"name": "train", "phase": "Queued"}]}))
    with console.capture() as shown:
        console.print(view)
    lines = shown.get().splitlines()
    assert lines[0].strip() == "maps/support-bot  Queued  no room  expected start: about 2020-11-21 12:35 UTC"
    assert lines[1].split() == ["·", "train", "queued"]


def test_the_live_view_has_a_line_per_task_and_a_bar_for_those_at_work() -> None:
    console = Console(file=io.StringIO(), width=120)
    view = LiveJob(console)
    view(make_hub_job(make_running()))
    view.away(TuneyardError("the hub does not answer"))
    with console.capture() as shown:
        console.print(view)
    lines = shown.get().splitlines()
    assert lines[0].startswith("maps/support-bot  Running  train runs on gcp-h100")
    assert "attempt 2  step 40/120  gcp-h100, 16 x h100-80gb on 2 nodes" in lines[1]
    assert "loss 1.832  52,300 tokens/s" in lines[2]
    assert "judge" in lines[3]
    assert "…" not in lines[1], "an attempt of more than a hundred hours has a longer time"
    assert lines[-1].strip() == "the hub does not answer; waiting for it"
