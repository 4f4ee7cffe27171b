"""What `tuneyard run` says while a job runs, and at its end."""

from __future__ import annotations

import ast
import inspect
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

import tuneyard
from tuneyard.api import JobSpec
from tuneyard.cli.progress.live import LiveProgress
from tuneyard.cli.progress.notebook import NotebookProgress
from tuneyard.cli.progress.plain import PlainProgress
from tuneyard.cli.summary import comparisons, print_summary
from tuneyard.runtime import stop_on_interrupt
from tuneyard.tracking import Checkpointed, Event, Report, SampleShown, Scored, Stage, Step, TaskEvent, Warned
from tuneyard.tracking.progress.words import clock

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
        "tune   step 1/3  loss 4.250  5,230 tokens/s  MFU 31.0%  1.2 GB  ETA 1:02",
        "tune   checkpoint of step 1 committed in 0.2 s (2.0 MB)",
        "tune   warning: rank 1 died",
        "tune   step 3/3  loss 4.250  5,230 tokens/s  MFU 31.0%  1.2 GB",
        "tune   succeeded after 0:00",
        "score  started",
        "score  rows 32/64  410 output tokens/s  1 error  ETA 0:09",
        "stopping at the next step, keeping the checkpoint; Ctrl-C again to end at once",
    ]


def test_a_task_that_goes_on_says_from_which_step() -> None:
    stream, console = io.StringIO(), Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    plain, live = PlainProgress(JOB, stream), LiveProgress(JOB, console)
    for event in (EVENTS[0], Stage(task="tune", name="starting 2 ranks"), Stage(task="tune", name="continues from step 51 of 400")):
        plain(event)
        live(event)
    assert stream.getvalue().splitlines() == ["tune   started (train)", "tune   starting 2 ranks", "tune   continues from step 51 of 400"]
    with console.capture() as capture:
        console.print(live)
    assert "continues from step 51 of 400" in capture.get()


def test_every_step_is_shown_where_asked() -> None:
    stream = io.StringIO()
    progress = PlainProgress(JOB, stream, every_s=0)
    for event in EVENTS:
        progress(event)
    assert "tune   step 1/3  loss 4.250  5,230 tokens/s  MFU 31.0%  1.2 GB  ETA 1:02" in stream.getvalue().splitlines()


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
    assert "loss 4.250  5,230 tokens/s  MFU 31.0%" in lines[1]
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
    assert "empty" not in text
    assert "measured peak" not in text
    assert comparisons({"only": tasks["score-base"]}) == []
    tasks["score-tuned"] |= {"empty": 12, "looping": 0, "cut_off": 7}
    print_summary(Report(job="j", status="succeeded", tasks=tasks))
    head, _, tuned, *rest = capsys.readouterr().out.split("scored", 1)[1].splitlines()
    assert head.split()[1:4] == ["errors", "empty", "cut"]
    assert tuned.split()[3:5] == ["12", "7"]
    assert rest[0].endswith("exact_match 0 -> 0.5; outputs: score-base not counted, score-tuned 12 empty, 7 cut off of 64")
    tasks["tune"]["peak_from"] = "measured"
    print_summary(Report(job="j", status="succeeded", tasks=tasks))
    assert capsys.readouterr().out.splitlines()[-1] == "MFU is of the measured peak"


def test_score_tasks_of_different_references_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"source": "d.jsonl", "prompt": "q", "reference": "answer"}
    sources = {"base": data, "list": {**data, "reference": "answers"}, "tuned": {**data, "chat": False}, "first": {**data, "limit": 8}}
    spec = {"spec": {"tasks": [{"name": name, "score": {"data": source}} for name, source in sources.items()]}}
    tasks = {name: {"kind": "score", "rows": 8, "metrics": {"exact_match": 1.0 if name == "base" else 0.5}} for name in sources}
    print_summary(Report(job="j", status="succeeded", tasks=tasks, spec=spec))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "against" in line] == ["tuned against base: exact_match 1 -> 0.5 (-50%)"]
    assert {line.split()[0] for line in lines} >= set(sources)


@pytest.mark.parametrize(("seconds", "text"), [(7, "0:07"), (725, "12:05"), (12_000, "3:20:00")])
def test_times(seconds: float, text: str) -> None:
    assert clock(seconds) == text


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


def test_a_notebook_has_one_output_that_is_drawn_anew() -> None:
    shown: list[dict[str, str]] = []
    outputs: list[str] = []

    def show(content: dict[str, str]) -> Callable[[dict[str, str]], object]:
        outputs.append("new")
        shown.append(content)
        return shown.append

    now = iter(range(100))
    with NotebookProgress(JOB, show=show, clock=lambda: next(now) / 4) as view:
        view(TaskEvent(task="tune", state="started", kind="train"))
        for number in range(1, 4):
            view(step(number))
        view(Warned(task="tune", message="2 samples were <cut>"))
        view(TaskEvent(task="tune", state="succeeded", kind="train", result={}))
    assert outputs == ["new"]
    assert len(shown) < 7, "steps that follow each other quickly are drawn once"
    last = shown[-1]
    assert "2 samples were &lt;cut&gt;" in last["text/html"]
    assert "✓" in last["text/plain"]
    assert "loss 4.25" in last["text/plain"]
    assert last["text/html"].count("samples were") == 1


def test_what_programs_see_of_the_package() -> None:
    code = "import sys, tuneyard; print(*dir(tuneyard)); print([m for m in ('pydantic', 'rich', 'ray', 'torch') if m in sys.modules])"
    names, loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"run", "submit", "__version__"} <= set(names.split())
    assert loaded == "[]"
    assert inspect.signature(tuneyard.run).return_annotation == "Report"


def test_type_checkers_know_run_and_submit() -> None:
    shown = [str(Path(tuneyard.__file__).with_name(name)) for name in ("__init__.pyi", "py.typed")]
    assert all(Path(name).is_file() for name in shown)
    stub = ast.parse(Path(shown[0]).read_text())
    offered = {alias.asname for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert offered == set(tuneyard._ROOMS), "the stub names what the package gives"
    for node in ast.walk(stub):
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(import_module(str(node.module)), alias.name) for alias in node.names)


SAMPLE = SampleShown(task="tune", pieces=(("<|user|>2+2?", False), ("4\x1b[31m<|end|>", True)), ends_with="<|end|>")


def test_a_training_sample_is_shown_with_its_loss() -> None:
    said, screen = io.StringIO(), io.StringIO()

    PlainProgress(JOB, said)(SAMPLE)
    LiveProgress(JOB, Console(file=screen, force_terminal=True, width=100))(SAMPLE)

    assert said.getvalue().splitlines() == [
        "tune   a sample as the model sees it (marked «» text carries loss; answers end with <|end|>):",
        "tune   <|user|>2+2?«4\\u001b[31m<|end|>»",
    ]
    assert "highlighted text carries loss" in screen.getvalue()
    assert "\x1b[30;42m4\\u001b[31m<|end|>" in screen.getvalue()
