"""Memory and speed of a program in `tuneyard plan`, from runs of it that are in history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_plan import rows

from tuneyard.api import JobSpec
from tuneyard.catalog import gpu
from tuneyard.cli import main
from tuneyard.planning import plan_of_program
from tuneyard.tracking import TaskEvent
from tuneyard.tracking.history_sink import HistorySink
from tuneyard.tracking.sink import Warnings

PROGRAM = "class Line:\n    def collate(self, rows): ...\n    def loss(self, model, batch): ...\n    def model(self): ...\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and rows, and a history of its own."""
    monkeypatch.setenv("TUNEYARD_HISTORY", "on")
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path}/history.db")
    (tmp_path / "line.py").write_text(PROGRAM)
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n')
    return tmp_path


def job(name: str = "lines", workers: int = 2, **train: Any) -> dict[str, Any]:
    body = {"program": "line:Line", "data": {"source": "rows.jsonl"}, "batch": {"global": 64}, "steps": 600} | train
    task = {"name": "fit", "train": body, "resources": {"sku": ["h100-80gb"], "workers": workers}}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": name}, "spec": {"tasks": [task]}}


def ran(here: Path, values: dict[str, Any], rows_per_s: float, status: str = "succeeded", label: str = "fit") -> None:
    """A run in history, as the runtime writes it; under another label a trial of a search."""
    spec = JobSpec.model_validate(values)
    task = spec.spec.tasks[0]
    assert task.train is not None
    assert isinstance(task.resources.workers, int)
    plan = plan_of_program(task.train, gpu("h100-80gb"), task.resources.workers).to_dict()
    result = {"peak_memory_gb": [3.0, 4.5], "details": {"program": "line:Line", "rows_per_s": rows_per_s}}
    sink = HistorySink(spec, "", Warnings(), url=f"sqlite:///{here}/history.db")
    sink.record(TaskEvent(task=label, state="started", kind="train", plan=plan))
    sink.record(TaskEvent(task=label, state=status, kind="train", result=result if status == "succeeded" else None))
    sink.close(status, "")


def test_the_latest_run_with_the_same_settings_and_layout_tells_memory_speed_time_and_cost(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(here, job(seed=7), 64.0)
    ran(here, job(steps=50, data={"source": "other.jsonl"}), 128.0)
    for other in (job("others"), job(workers=1), job(batch={"global": 32}), job(optimizer={"name": "sgd"}), job(strategy={"zero": 2})):
        ran(here, other, 1.0)
    ran(here, job(), 0.0, status="failed")
    (here / "job.yaml").write_text(yaml.safe_dump(job()))

    (row,) = rows(capsys, str(here / "job.yaml"), "--price", "h100-80gb=2")

    assert (row["measured_memory_gb"], row["rows_per_s"], row["duration_s"]) == (4.5, 128.0, 300.0)
    assert row["cost"] == pytest.approx(300 / 3600 * 2 * 2)
    assert (row["fits"], row["memory_gb"]) == (None, None)
    assert main(["plan", str(here / "job.yaml")]) == 0
    assert "its latest run with this layout took 4.50 GB a rank and 128 rows/s, measured, not predicted" in capsys.readouterr().out


def test_a_trial_of_a_search_over_the_task_tells_them_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(here, job(), 64.0)
    for tuned, rows_per_s in (("fit", 128.0), ("more", 1.0)):
        searched = job()
        more = {**searched["spec"]["tasks"][0], "name": "more"}
        searched["spec"]["tasks"] += [more, {"name": "search", "tune": {"task": tuned}}]
        ran(here, searched, rows_per_s, label="search/3")
    (here / "job.yaml").write_text(yaml.safe_dump(job()))

    (row,) = rows(capsys, str(here / "job.yaml"))

    assert row["rows_per_s"] == 128.0


def test_without_such_a_run_nothing_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(here, job("others"), 1.0)
    (here / "job.yaml").write_text(yaml.safe_dump(job()))

    (row,) = rows(capsys, str(here / "job.yaml"))

    assert "rows_per_s" not in row
    assert "memory, speed and cost are not predicted" in row["reason"]
