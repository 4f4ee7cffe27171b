"""One report.json from drivers that run at the same time and know nothing of each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.reports import make_job

from tuneyard.runtime.joint_report import JointReport
from tuneyard.runtime.output import JobOutput
from tuneyard.storage import open_store
from tuneyard.tracking import Report

TASKS = ("base", "train", "judge")


def own(task: str, status: str, message: str = "") -> Report:
    """What the driver of one task knows: the others it takes for pending."""
    tasks: dict[str, dict[str, Any]] = {name: {"status": "pending"} for name in TASKS}
    tasks[task] = {"status": status, "figure": float(len(task))}
    return Report(job="support-bot", status=status, tasks=tasks, message=message, started_at="2026-01-01T00:00:00+00:00")


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_each_driver_adds_its_task(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    JointReport(output, make_job(), "base", 1).write(own("base", "succeeded"))
    assert read(tmp_path)["status"] == "running"
    assert [task["status"] for task in read(tmp_path)["tasks"].values()] == ["succeeded", "pending", "pending"]
    JointReport(output, make_job(), "train", 2).write(own("train", "running"))
    JointReport(output, make_job(), "judge", 3).write(own("judge", "succeeded"))
    JointReport(output, make_job(), "train", 2).write(own("train", "succeeded"))
    assert read(tmp_path)["status"] == "succeeded"
    assert list(read(tmp_path)["tasks"]) == list(TASKS)
    assert (tmp_path / "report.html").exists()


def test_a_failure_shows_until_the_next_attempt_begins(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    JointReport(output, make_job(), "train", 1).write(own("train", "failed", "a node was lost"))
    assert (read(tmp_path)["status"], read(tmp_path)["message"]) == ("failed", "a node was lost")
    JointReport(output, make_job(), "train", 2).write(own("train", "running"))
    assert read(tmp_path)["status"] == "running"


def test_an_attempt_that_is_over_does_not_write_over_its_successor(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    JointReport(output, make_job(), "train", 2).write(own("train", "running"))
    JointReport(output, make_job(), "train", 1).write(own("train", "failed", "late"))
    assert read(tmp_path)["tasks"]["train"]["status"] == "running"


class Interrupting:
    """A store on which somebody else writes whenever a report is about to be."""

    def __init__(self, folder: Path) -> None:
        self.inner = open_store(str(folder))
        self.before: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, path: str, data: bytes) -> None:
        if path == "report.json" and self.before:
            self.before.pop()()
        self.inner.put(path, data)


@settings(deadline=None)
@given(order=st.permutations(TASKS))
def test_the_last_to_end_leaves_a_complete_report(order: list[str], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("out")
    store = Interrupting(folder)
    output = JobOutput(str(folder))
    output.store = store  # type: ignore[assignment]
    first, *others = order
    # The others end between the moment in which the first has read all sections and the one in which it writes.
    store.before = [
        lambda task=task: JointReport(JobOutput(str(folder)), make_job(), task, 1).write(own(task, "succeeded")) for task in others
    ]
    JointReport(output, make_job(), first, 1).write(own(first, "succeeded"))
    assert read(folder)["status"] == "succeeded"
