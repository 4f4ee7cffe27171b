"""A console over a real history: jobs told through the real recorder and sink, and the command that shows them as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.reports import PLAN, make_job, score_events, tell, train_events, train_result
from tests.servers.installed import free_port, running

from tuneyard.tracking import Recorder, TaskEvent, write_report
from tuneyard.tracking.history import History, Insert
from tuneyard.tracking.history_sink import HistorySink
from tuneyard.tracking.sink import Warnings
from tuneyard.tracking.tables import attempts, jobs, usage

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe"
"""Markup, and a character that turns the writing direction."""


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'history.db'}"


def begun_job(url: str, output: Path, name: str = "support-bot", prompt: str = "How do I reset my password?", **spec: Any) -> Recorder:
    """A job whose base model is scored, and whose training is at step 60 of 120."""
    output.mkdir(parents=True, exist_ok=True)
    job = make_job(name, **spec)
    warnings = Warnings()
    recorder = Recorder(job, [HistorySink(job, str(output), warnings, url=url)], output=str(output), warnings=warnings)
    tell(recorder, score_events("base", {"exact_match": 0.212, "rouge_l": 0.305, "perplexity": 9.84}, prompt))
    tell(recorder, train_events(60, of=120))
    write_report(output, recorder.report())
    return recorder


def finished_job(url: str, output: Path, name: str = "support-bot", **spec: Any) -> None:
    """A job with three tasks, to its end, with logs and the rows of its score tasks."""
    recorder = begun_job(url, output, name, **spec)
    recorder(TaskEvent(task="train", state="failed", kind="train", failure="OutOfMemory", message="a rank took more than 80 GB at step 61"))
    tell(recorder, train_events())
    recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    tell(recorder, score_events("judge", {"exact_match": 0.447, "rouge_l": 0.521, "perplexity": 3.12}))
    write_report(output, replace(recorder.close("succeeded"), comparisons=[make_comparison()]))
    write_logs(output)
    write_rows(output / "base", "Open the Settings page and choose Reset")
    write_rows(output / "judge", "Open Settings, then Account, and choose Reset password.")


def make_comparison(task: str = "judge", against: str = "base") -> dict[str, Any]:
    """Two score tasks compared row by row, as report.json holds it: one figure is better, one is no different."""
    shares = {"wins": 9, "ties": 34, "losses": 1, "win_share": None, "tie_share": None, "loss_share": None}
    counts = {"rows": 44, "p_value": 0.01, **shares}
    values = {"values": {"exact_match": 1.0}, "values_against": {"exact_match": 0.0}, "outcomes": {"exact_match": "better"}}
    texts = {"prompt": "How?", "reference": "Settings", "output": "Settings", "against": "No", "judged": None, "judged_against": None}
    figures = [
        {"figure": "exact_match", "value": 0.447, "against": 0.212, "difference": 0.235, "interval": [0.1, 0.37], "real": True},
        {"figure": "perplexity", "value": 3.12, "against": 3.2, "difference": -0.08, "interval": [-0.2, 0.04], "real": False},
    ]
    return {
        "task": task,
        "against": against,
        "rows": 45,
        "errors": 0,
        "errors_against": 0,
        "errors_both": 1,
        "figures": [{**figure, **counts, "better": True} for figure in figures],
        "better_rows": [{"row": row, **texts, **values} for row in (41, 0)],
        "worse_rows": [],
    }


def failed_job(url: str, output: Path, name: str = "nightly-eval") -> None:
    recorder = begun_job(url, output, name)
    message = "rank 3 lost its GPU at step 61 (Xid 79); next: run again with --resume, on another machine"
    recorder(TaskEvent(task="train", state="failed", kind="train", failure="NodeLost", message=message))
    write_report(output, recorder.close("failed", message))


def write_logs(output: Path, lines: int = 3_000) -> None:
    """One growing file for rank 0, and numbered files for rank 1, as a hub's attempts leave them."""
    (output / "logs").mkdir(parents=True, exist_ok=True)
    text = "".join(f"2026-11-26 08:{n // 60 % 60:02}:{n % 60:02} step {n} loss {3 - n / 2000:.3f}\n" for n in range(lines))
    (output / "logs" / "train-rank-0.log").write_text(f"{text}CUDA error: {HOSTILE}\n", encoding="utf-8")
    folder = output / "logs" / "train" / "1" / "rank-1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "000001.log").write_text("first part\n")
    (folder / "000002.log").write_text("second part\n")


def write_rows(folder: Path, answer: str, rows: int = 45) -> None:
    """Parquet parts of a score task."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "parts").mkdir(parents=True, exist_ok=True)
    for part, numbers in enumerate((range(30), range(30, rows))):
        table = {
            "row": list(numbers),
            "question": [f"Question {n}: how do I reset my password?" for n in numbers],
            "output": [None if n == 7 else f"{answer} ({n})" for n in numbers],
            "error": ["the prompt is longer than the model's context" if n == 7 else None for n in numbers],
            "answer": ["Settings > Account > Reset"] * len(numbers),
        }
        pq.write_table(pa.table(table), folder / "parts" / f"part-{part:05d}.parquet")


def many_jobs(url: str, count: int, *, team: str = "maps") -> None:
    """Rows of jobs that ended, an hour apart, each with an attempt and its usage."""
    history = History.open(url)
    now = datetime.now(UTC)
    spec = json.loads(json.dumps(make_job().to_yaml_dict()))
    rows: list[Insert] = []
    for number in range(count):
        began, key = now - timedelta(hours=number + 1), f"{number:032x}"
        status = "failed" if number % 17 == 0 else "succeeded"
        told = {"namespace": "default", "team": team, "message": "", "output": "", "spec": spec}
        rows.append(
            Insert(
                jobs,
                {
                    "id": key,
                    "name": f"job-{number % 500}",
                    "status": status,
                    "started_at": began,
                    "ended_at": began + timedelta(minutes=40),
                    **told,
                },
            )
        )
    for number, job in enumerate(list(rows)):
        values = {"id": f"a{number:031x}", "job_id": job.values["id"], "task": "train", "kind": "train", "number": 1, "message": ""}
        values |= {
            "status": job.values["status"],
            "failure": "OutOfMemory" if number % 17 == 0 else "",
            "sku": "h100-80gb",
            "workers": 8,
            "gpus": 8,
        }
        values |= {"plan": PLAN.to_dict(), "result": None, "settings": None}
        rows.append(Insert(attempts, {**values, "started_at": job.values["started_at"], "ended_at": job.values["ended_at"]}))
        spent = {"team": team, "sku": "h100-80gb", "workers": 8, "seconds": 2400.0, "gpu_hours": 5.3}
        rows.append(Insert(usage, {"attempt_id": values["id"], **spent}))
    for table in (jobs, attempts, usage):
        history.write([row for row in rows if row.table is table])
    history.close()


@contextmanager
def console(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The command over the history of `folder`; its address without the last slash."""
    port = free_port()
    command = [str(Path(sys.executable).parent / "tuneyard"), "console", "--no-browser", "--port", str(port), *words]
    log = folder / "console.log"
    ready = f"console: http://127.0.0.1:{port}/"
    values = {"TUNEYARD_HISTORY_URL": url_of(folder), "PYTHONUNBUFFERED": "1", **(environment or {})}
    with running(command, port=port, log=log, env=values, ready=lambda: ready in log.read_text()):
        yield f"http://127.0.0.1:{port}"


def get(address: str, **headers: str) -> tuple[int, str]:
    """Status and text of a page."""
    command = [
        "curl",
        "-s",
        "-g",
        "-w",
        "\n%{http_code}",
        *[f"-H{name.replace('_', '-')}: {value}" for name, value in headers.items()],
        address,
    ]
    text, _, status = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True).stdout.rpartition("\n")
    return int(status), text
