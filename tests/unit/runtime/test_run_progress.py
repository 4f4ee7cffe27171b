"""What `tuneyard run` says while a job runs, and at its end."""

from __future__ import annotations

import io
import os
import signal

import pytest
from rich.console import Console

from tuneyard.api import JobSpec
from tuneyard.cli.progress import PlainProgress
from tuneyard.cli.progress_live import LiveProgress
from tuneyard.cli.progress_state import clock, share
from tuneyard.cli.summary import comparisons, print_summary
from tuneyard.runtime import stop_on_interrupt
from tuneyard.tracking import Checkpointed, Event, Report, Scored, Stage, Step, TaskEvent, Warned

JOB = JobSpec.model_validate(
    {
        "metadata": {"name": "j"},
        "spec": {
            "tasks": [
                {"name": "tune", "train": {"model": {"name": "m"}, "data": {"source": "d"}}},
                {"name": "score", "score": {"model": {"from": "tune"}, "data": {"source": "d"}}},
            ]
        },
    }
)


def step(number: int) -> Step:
    return Step(
        task="tune",
        step=number,
        of=3,
        loss=4.25,
        learning_rate=1e-3,
        tokens=64,
        step_s=0.1,
        tokens_per_s=5230.4,
        mfu=0.31,
        eta_s=62,
        memory_gb=1.25,
    )


EVENTS: list[Event] = [
    TaskEvent(task="tune", state="started", kind="train"),
    Stage(task="tune", name="loading the model"),
    step(1),
    Checkpointed(task="tune", step=1, uri="x", seconds=0.2, bytes=2_000_000),
    Warned(task="tune", message="rank 1 died"),
    step(2),
    step(3),
    TaskEvent(task="tune", state="succeeded", kind="train"),
    TaskEvent(task="score", state="started", kind="score"),
    Scored(task="score", rows=32, of=64, errors=1, output_tokens_per_s=410.0, eta_s=9),
]


def test_plain_lines() -> None:
    stream = io.StringIO()
    progress = PlainProgress(JOB, stream)
    for event in EVENTS:
        progress(event)
    progress.stopping()
    assert stream.getvalue().splitlines() == [
        "tune   started (train)",
        "tune   loading the model",
        "tune   checkpoint of step 1 committed in 0.2 s (2.0 MB)",
        "tune   warning: rank 1 died",
        "tune   step 3/3  loss 4.250  5,230 tokens/s  MFU 31%  1.2 GB",
        "tune   succeeded after 0:00",
        "score  started (score)",
        "score  rows 32/64  410 output tokens/s  1 errors  ETA 0:09",
        "stopping at the next step, keeping the checkpoint; Ctrl-C again to end at once",
    ]


def test_every_step_is_shown_where_asked() -> None:
    stream = io.StringIO()
    progress = PlainProgress(JOB, stream, every_s=0)
    for event in EVENTS:
        progress(event)
    assert "tune   step 1/3  loss 4.250  5,230 tokens/s  MFU 31%  1.2 GB  ETA 1:02" in stream.getvalue().splitlines()


def test_the_live_view_shows_all_tasks_and_the_figures_of_the_running_one() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    live = LiveProgress(JOB, console)
    for event in EVENTS[:3]:
        live(event)
    with console.capture() as capture:
        console.print(live)
    lines = capture.get().splitlines()
    assert "tune" in lines[0]
    assert "step 1/3" in lines[0]
    assert "loss 4.250  5,230 tokens/s  MFU 31%" in lines[1]
    assert lines[2].split() == ["·", "score", "score"]


def test_the_summary_compares_score_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    scored = {"kind": "score", "rows": 64, "errors": 0, "output_tokens_per_s": 400.0, "mfu": 0.01, "wall_s": 30.0}
    tasks = {
        "tune": {
            "kind": "train",
            "losses": [5.0, 3.0],
            "steps": 2,
            "tokens_per_s": 5000.0,
            "mfu": 0.3,
            "peak_memory_gb": [1.0, 1.5],
            "wall_s": 61,
        },
        "score-base": {**scored, "metrics": {"perplexity": 40.0, "exact_match": 0.0}},
        "score-tuned": {**scored, "metrics": {"perplexity": 10.0, "exact_match": 0.5}},
    }
    print_summary(Report(job="j", status="succeeded", tasks=tasks))
    text = capsys.readouterr().out
    assert "5.000 -> 3.000" in text
    assert "score-tuned against score-base: perplexity 40 -> 10 (-75%), exact_match 0 -> 0.5" in text
    assert comparisons({"only": tasks["score-base"]}) == []


@pytest.mark.parametrize(("seconds", "text"), [(7, "0:07"), (725, "12:05"), (12_000, "3:20:00")])
def test_times(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.312, "31%"), (0.0042, "0.4%")])
def test_shares(value: float, text: str) -> None:
    assert share(value) == text


def test_the_first_interrupt_asks_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)  # not Python's own where the tests run in the background of a shell
    told: list[str] = []
    with stop_on_interrupt(lambda: told.append("stopping")) as should_stop:
        assert not should_stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert should_stop()
        assert told == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
