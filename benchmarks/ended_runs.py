"""Signals to the process group of `tuneyard run` at random instants: what report, history and the command say afterwards.

`python benchmarks/ended_runs.py [--runs N] [--seed N] [--loading [--minutes M]]`: a job trains on two ranks and scores on an engine. Each
run is asked once to end, by SIGTERM, SIGINT or SIGHUP, as `timeout`, a terminal and a batch system do: the signal goes to the whole group,
and SIGTERM and SIGHUP twice. `--loading`: while ranks or an engine load; a run has one of the two tasks. After M minutes no further run
begins; the next call goes on with those that are left, until build/ended_runs_loading.jsonl is removed.
Writes docs/benchmarks/ended_runs.md, each way a part of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training_cases import machine, write_page  # noqa: E402
from tests.builders.models import write_chats, write_model  # noqa: E402

TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TWICE = (signal.SIGTERM, signal.SIGHUP)
GRACE_S = 5.0
"""Until a process that had the signal counts as left over."""
PAGE = ROOT / "docs" / "benchmarks" / "ended_runs.md"
KEPT = ROOT / "build" / "ended_runs_loading.jsonl"
LOADING = "\n## While ranks and engines load\n"
WORKS = re.compile(r"(step|rows) [\d,]+/")
"""What the console says of a task once its ranks or engines are loaded."""


@dataclass(frozen=True)
class Ended:
    """`at`: the task that worked, or what it was doing. `report`, `history`: their statuses; "none" without any. `left`: processes that
    outlived the command.
    """

    signal: str
    second: float
    at: str
    code: int
    ended_in_s: float
    report: str
    history: str
    left: int
    said: str

    @property
    def told(self) -> bool:
        """Whether all agree, and nothing is left. A run whose job had not begun has neither report nor history."""
        if (self.report, self.history) == ("none", "none"):
            return self.code != 0 and not self.left
        status = "succeeded" if self.code == 0 else "stopped"
        return (self.report, self.history, self.left) == (status, status, 0)


@dataclass
class Console:
    """The lines that a run prints about one task, each with the second at which it was seen."""

    path: Path
    task: str
    lines: list[tuple[float, str]] = field(default_factory=list)

    def look(self, second: float) -> None:
        whole = self.path.read_text(errors="replace").rpartition("\n")[0]
        about = [line for line in whole.splitlines() if line.startswith(f"{self.task} ")]
        self.lines += [(second, line.removeprefix(self.task).strip()) for line in about[len(self.lines) :]]

    @property
    def begun_s(self) -> float | None:
        return self.lines[0][0] if self.lines else None

    @property
    def load_s(self) -> float:
        """Seconds from the first line to the first step or row. Raises StopIteration if there is none."""
        return next(second for second, line in self.lines if WORKS.match(line)) - self.lines[0][0]

    @property
    def doing(self) -> str:
        """The last line, without its figures."""
        line = self.lines[-1][1] if self.lines else "starting"
        return f"{self.task}: {re.split(r' [0-9]', line)[0] if WORKS.match(line) is None else 'at work'}"


def write_job(folder: Path, only: str = "") -> Path:
    """A job of two tasks, or of one."""
    write_model(folder / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    write_chats(folder / "chats.jsonl")
    rows = [{"prompt": f"{number} and 1 is", "reference": "1"} for number in range(40)]
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train: dict[str, Any] = {
        "model": {"name": "model"},
        "data": {"source": "chats.jsonl", "maxLength": 64},
        "optimizer": {"learningRate": 1e-3},
        "batch": {"global": 8, "micro": 2},
        "steps": 60,
        "strategy": {"zero": 2},
        "checkpoint": {"everySteps": 20},
    }
    score: dict[str, Any] = {
        "model": {"from": "train"},
        "data": {"source": "asked.jsonl", "prompt": "prompt", "reference": "reference"},
        "generation": {"maxTokens": 16},
        "engine": {"kvCache": "64Mi"},
        "metrics": ["exact_match"],
    }
    tasks = [{"name": "train", "train": train, "resources": {"workers": 2}}, {"name": "score", "score": score}]
    if only:
        score["model"] = {"name": "model"}
        tasks = [task for task in tasks if task["name"] == only]
    path = folder / f"job{only}.yaml"
    path.write_text(
        yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "ended"}, "spec": {"tasks": tasks}})
    )
    return path


def run(job: Path, out: Path, number: signal.Signals | None, after_s: float, loads: str = "") -> tuple[Ended, float, Console]:
    """One run, asked to end after `after_s` seconds: of the run, or of the task that `loads`. Returns what was found, the seconds that it
    took, and what it printed about that task.
    """
    home = out.parent / f"{out.name}-home"
    home.mkdir()
    environment = {**os.environ, "TUNEYARD_HISTORY_URL": f"sqlite:///{home}/history.db"}
    console = Console(out.parent / f"{out.name}.log", loads)
    began = time.monotonic()
    with console.path.open("w") as printed:
        process = subprocess.Popen(
            [TUNEYARD, "run", str(job), "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=printed,
            env=environment,
            start_new_session=True,
        )
    started: set[psutil.Process] = set()
    at = ""
    if number is not None or loads:
        while process.poll() is None:
            second = time.monotonic() - began
            console.look(second)
            since = console.begun_s if loads else 0.0
            if number is not None and since is not None and second >= since + after_s:
                break
            time.sleep(0.02)
    if number is not None:
        started = set(_children(process.pid))
        at = console.doing if loads else _task_at_work(out)
        for _ in range(2 if number in TWICE else 1):
            _signal_group(process.pid, number)
    asked = time.monotonic()
    process.wait(timeout=600)
    ended = time.monotonic()
    said = console.path.read_text(errors="replace")
    _, left = psutil.wait_procs(started, timeout=GRACE_S)
    listed = json.loads(subprocess.check_output([TUNEYARD, "history", "list", "-o", "json"], env=environment, text=True))
    report = json.loads((out / "report.json").read_text())["status"] if (out / "report.json").exists() else "none"
    found = Ended(
        signal=number.name if number else "",
        second=after_s,
        at=at,
        code=process.returncode,
        ended_in_s=ended - asked,
        report=report,
        history=listed[0]["status"] if listed else "none",
        left=len(left),
        said=said.strip().splitlines()[-1] if said.strip() else "",
    )
    return found, ended - began, console


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _task_at_work(out: Path) -> str:
    """The task that the report says is at work."""
    try:
        tasks = json.loads((out / "report.json").read_text())["tasks"]
    except (OSError, ValueError):
        return "before the first task"
    working = [name for name, task in tasks.items() if task["status"] in ("running", "pending")]
    return working[0] if working else "the end"


def main() -> int:
    parser = argparse.ArgumentParser(description="Ends runs at random instants: see the docstring.")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loading", action="store_true", help="only while ranks or an engine load")
    parser.add_argument("--minutes", type=float, default=math.inf, help="with --loading: begin no run after these")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs, and their children, ignore it
    with tempfile.TemporaryDirectory(prefix="tuneyard-ended-") as name:
        if given.loading:
            return _while_loading(Path(name), given.runs, given.seed, given.minutes)
        return _at_any_time(Path(name), given.runs, random.Random(given.seed))


def _at_any_time(folder: Path, runs: int, draw: random.Random) -> int:
    loading = PAGE.read_text(encoding="utf-8").partition(LOADING)
    job = write_job(folder)
    whole, took_s, _ = run(job, folder / "whole", None, 0)
    if whole.report != "succeeded" or not whole.told:
        print(f"the run that is left alone: {whole}", file=sys.stderr)
        return 1
    found = []
    for turn in range(runs):
        ended, *_ = run(job, folder / f"run-{turn}", SIGNALS[turn % len(SIGNALS)], draw.uniform(0, took_s))
        print(f"{turn + 1}: {ended}", file=sys.stderr, flush=True)
        found.append(ended)
    about = (
        f"A job trains a tiny model on two ranks and scores it on an engine; left alone, it takes {took_s:.0f} s. Each run is asked once",
        "to end, at an instant drawn evenly from that time. The signal goes to the command's process group, SIGTERM and SIGHUP twice.",
    )
    write_page("ended_runs", "Runs that are asked to end at random instants", [*about, *page(found), *"".join(loading[1:]).splitlines()])
    return 0


def _while_loading(folder: Path, runs: int, seed: int, minutes: float) -> int:
    until = time.monotonic() + 60 * minutes
    jobs, load_s = {}, {}
    for task in ("train", "score"):
        jobs[task] = write_job(folder, task)
        whole, _, console = run(jobs[task], folder / f"whole-{task}", None, 0, task)
        if whole.report != "succeeded" or not whole.told:
            print(f"the run that is left alone: {whole}", file=sys.stderr)
            return 1
        load_s[task] = console.load_s
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a+", encoding="utf-8") as kept:
        kept.seek(0)
        found = [Ended(**json.loads(line)) for line in kept]
        for turn in range(len(found), runs):
            if time.monotonic() > until:
                break
            task, draw = ("train", "score")[turn // len(SIGNALS) % 2], random.Random(f"{seed} {turn}")
            ended, *_ = run(jobs[task], folder / f"run-{turn}", SIGNALS[turn % len(SIGNALS)], draw.uniform(0, load_s[task]), task)
            print(f"{turn + 1}: {ended}", file=sys.stderr, flush=True)
            print(json.dumps(asdict(ended)), file=kept, flush=True)
            found.append(ended)
    command = shlex.join(["python", "benchmarks/ended_runs.py", *sys.argv[1:]])
    part = [
        *(f"`{command}`, {date.today().isoformat()}, {machine()}.", ""),
        "Half of the jobs train on two ranks, and half score on an engine. The instant is drawn evenly from the time between the task's",
        f"first line and its first step or row: {load_s['train']:.0f} s and {load_s['score']:.0f} s in runs that were left alone.",
        *page(found),
    ]
    anywhere = PAGE.read_text(encoding="utf-8").partition(LOADING)[0]
    PAGE.write_text("\n".join([anywhere.rstrip(), LOADING, *part, ""]), encoding="utf-8")
    return 0


def page(found: list[Ended]) -> list[str]:
    lines = [
        "",
        "| signal | runs | report, history and exit code agree, no process left | seconds to the end: median, most |",
        "|---|---|---|---|",
    ]
    for number in SIGNALS:
        own = [each for each in found if each.signal == number.name]
        if own:
            waits = sorted(each.ended_in_s for each in own)
            told = sum(each.told for each in own)
            lines.append(f"| {number.name} | {len(own)} | {told} | {waits[len(waits) // 2]:.1f}, {waits[-1]:.1f} |")
    lines += ["", "| at work when it came | runs | ended as |", "|---|---|---|"]
    for at in dict.fromkeys(each.at for each in found):
        ends = Counter(each.report for each in found if each.at == at)
        lines.append(f"| {at} | {ends.total()} | {', '.join(f'{count} {status}' for status, count in ends.most_common())} |")
    for each in found:
        if not each.told:
            lines += ["", f"Not told: `{each}`"]
    return lines


if __name__ == "__main__":
    sys.exit(main())
