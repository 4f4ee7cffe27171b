"""The conductor, by its two front doors. Process tasks need no Ray; ranks and engines are run in tests/integration/runtime."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clusters.run_machines import assigned, job_of_commands

from tuneyard.api import JobFailed, JobSpec, StorageError, TuneyardError
from tuneyard.runtime import run_job
from tuneyard.runtime.assigned import run_assigned
from tuneyard.runtime.attempt.log_shipper import LogShipper
from tuneyard.tracking import Event, TaskEvent, Warned

Run = Callable[..., str]
WRITE = ["sh", "-c", "echo done > $TUNEYARD_OUTPUT/file"]
FAIL = ["sh", "-c", "echo out of paper; exit 7"]


@pytest.fixture(autouse=True)
def _no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")


class Doors:
    """Both ways to run a job in a folder; `heard`: events of the last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard: list[Event] = []

    def local(self, job: JobSpec, **options: Any) -> str:
        self.heard = []
        return run_job(job, base_dir=self.folder, out=str(self.folder / "out"), listener=self.heard.append, **options).status

    def attempt(self, job: JobSpec, task: str = "t1", number: int = 1, *, stop: bool = False) -> str:
        self.heard = []
        assignment = assigned(self.folder, task, number)
        logs = LogShipper(str(self.folder / "out"), task, number, [])
        try:
            return run_assigned(
                job,
                assignment,
                base_dir=self.folder,
                out=str(self.folder / "out"),
                listener=self.heard.append,
                should_stop=lambda: stop,
                stop_grace_s=lambda: 30.0,
                scratch=assignment.scratch / f"own-{number}",
                logs=logs,
            )
        finally:
            logs.close(10.0)

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "out/report.json").read_text()))

    @property
    def states(self) -> list[tuple[str, str, int]]:
        return [(event.task, event.state, event.attempt) for event in self.heard if isinstance(event, TaskEvent)]


@pytest.fixture
def doors(tmp_path: Path) -> Doors:
    return Doors(tmp_path)


def test_a_job_is_run_task_by_task_and_reported_the_same_by_both_doors(tmp_path: Path) -> None:
    job = job_of_commands(WRITE, WRITE)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    local, hub = Doors(tmp_path / "a"), Doors(tmp_path / "b")
    assert local.local(job) == "succeeded"
    assert [hub.attempt(job, "t1", 1), hub.attempt(job, "t2", 2)] == ["succeeded", "succeeded"]
    reports = [local.report, hub.report]
    assert [report["status"] for report in reports] == ["succeeded", "succeeded"]
    kept = [{name: (task["status"], task["files"]) for name, task in report["tasks"].items()} for report in reports]
    assert kept[0] == kept[1] == {"t1": ("succeeded", 1), "t2": ("succeeded", 1)}


def test_what_has_succeeded_is_not_run_again(doors: Doors) -> None:
    job = job_of_commands(WRITE)
    doors.attempt(job, number=1)
    assert doors.attempt(job, number=2) == "succeeded"
    assert doors.states == [("t1", "skipped", 1)]
    assert doors.local(job, resume=True) == "succeeded"
    assert doors.states == [("t1", "skipped", 1)]


def test_a_failure_is_in_the_report_whoever_conducts(doors: Doors, tmp_path: Path) -> None:
    for conduct in (doors.local, doors.attempt):
        with pytest.raises(JobFailed, match="exited 7") as raised:
            conduct(job_of_commands(FAIL))
        assert raised.value.blame.log_tail.strip() == "out of paper"
        assert (doors.report["status"], doors.report["tasks"]["t1"]["status"]) == ("failed", "failed")
        for path in sorted((tmp_path / "out").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()


def test_a_command_that_fails_starts_again_where_the_jobspec_says_so(doors: Doors, tmp_path: Path) -> None:
    once = ["sh", "-c", f"test -e {tmp_path}/tried && exec sh -c 'echo x > $TUNEYARD_OUTPUT/file'; touch {tmp_path}/tried; exit 7"]
    assert doors.local(job_of_commands(once, retries={"onUserError": "retry"})) == "succeeded"
    assert doors.states == [("t1", "started", 1), ("t1", "failed", 1), ("t1", "started", 2), ("t1", "succeeded", 2)]
    warnings = [event.message for event in doors.heard if isinstance(event, Warned)]
    assert warnings == ["the command of task t1 exited 7; starting attempt 2 of 4"]
    assert [attempt.get("failure") for attempt in doors.report["tasks"]["t1"]["attempts"]] == ["UserError", None]


def test_it_starts_again_as_often_as_the_jobspec_says(doors: Doors) -> None:
    with pytest.raises(JobFailed, match="exited 7"):
        doors.local(job_of_commands(FAIL, retries={"onUserError": "retry", "max": 2}))
    assert [state for _, state, _ in doors.states] == ["started", "failed"] * 3


def test_under_a_hub_it_is_the_hub_that_starts_it_again(doors: Doors) -> None:
    with pytest.raises(JobFailed, match="exited 7"):
        doors.attempt(job_of_commands(FAIL, retries={"onUserError": "retry"}), number=5)
    assert doors.states == [("t1", "started", 5), ("t1", "failed", 5)]


def test_a_stop_before_the_first_task_runs_nothing(doors: Doors) -> None:
    job = job_of_commands(WRITE)
    assert doors.attempt(job, stop=True) == "stopped"
    assert (doors.states, doors.report["message"]) == ([], "stopped in task t1; its checkpoints are kept")
    assert doors.local(job, resume=True, should_stop=lambda: True) == "stopped"
    assert (doors.states, doors.report["message"]) == ([], "stopped in task t1; go on with --resume")


def test_a_deadline_of_a_local_run_is_a_failure_and_the_hub_keeps_its_own(doors: Doors) -> None:
    slow = ["sh", "-c", "sleep 1; echo x > $TUNEYARD_OUTPUT/file"]
    with pytest.raises(JobFailed, match=r"deadline of 0\.2 s has passed in task t1"):
        doors.local(job_of_commands(slow, deadline="0.2s"))
    assert doors.attempt(job_of_commands(slow, deadline="0.2s")) == "succeeded"


def test_a_task_whose_needs_are_not_met_says_which_result_is_missing(doors: Doors) -> None:
    with pytest.raises(StorageError, match="task t2 needs the result of task t1"):
        doors.attempt(job_of_commands(WRITE, WRITE), "t2")


def test_a_second_interrupt_is_a_stop_in_the_report_too(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuneyard.runtime.tasks.run_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        doors.attempt(job_of_commands(WRITE))
    assert (doors.report["status"], doors.report["message"]) == ("stopped", "ended at once by a second Ctrl-C; its checkpoints are kept")


def test_a_report_that_cannot_be_written_fails_a_local_run_and_only_warns_in_an_attempt(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("the disk is full", "free space")

    monkeypatch.setattr("tuneyard.runtime.job_report.write_report", full)
    monkeypatch.setattr("tuneyard.runtime.joint_report.write_report", full)
    assert doors.attempt(job_of_commands(WRITE)) == "succeeded"
    assert any("could not be written: the disk is full" in event.message for event in doors.heard if isinstance(event, Warned))
    with pytest.raises(TuneyardError, match="the disk is full"):
        doors.local(job_of_commands(WRITE), resume=True)
