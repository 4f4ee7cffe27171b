"""Process tasks: real commands, whose output appears whole or not at all."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tuneyard.api import FailureKind, JobFailed, ProcessTask
from tuneyard.runtime.process.run import ProcessRequest, expand, run_process
from tuneyard.storage import open_store
from tuneyard.tracking import silent


def request(folder: Path, *command: str, timeout_s: float | None = None) -> ProcessRequest:
    return ProcessRequest(
        name="prepare",
        task=ProcessTask(command=list(command), timeout_s=timeout_s),
        base_dir=folder,
        output=open_store(str(folder / "out" / "prepare")),
        scratch=folder / "scratch",
        log=folder / "logs" / "prepare.log",
        log_address=str(folder / "logs" / "prepare.log"),
    )


def run(asked: ProcessRequest, *, stop: bool = False) -> object:
    return run_process(asked, silent, lambda: stop)


def test_what_the_command_writes_is_kept(tmp_path: Path) -> None:
    result = run(request(tmp_path, "sh", "-c", "mkdir $TUNEYARD_OUTPUT/sub; echo hello > $TUNEYARD_OUTPUT/sub/a.txt; echo done"))
    assert result.status == "succeeded"  # type: ignore[attr-defined]
    assert (tmp_path / "out/prepare/files/sub/a.txt").read_text() == "hello\n"
    assert (tmp_path / "logs/prepare.log").read_text() == "done\n"


def test_python_is_the_one_that_runs_tuneyard(tmp_path: Path) -> None:
    assert expand(["python", "-c", "x", "$TUNEYARD_OUTPUT/a"], tmp_path) == [sys.executable, "-c", "x", f"{tmp_path}/a"]


def test_a_command_that_fails_shows_its_last_lines_and_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="prepare exited 3") as error:
        run(request(tmp_path, "sh", "-c", "echo half > $TUNEYARD_OUTPUT/a; echo cannot go on >&2; exit 3"))
    assert "cannot go on" in error.value.cause
    assert "prepare.log" in error.value.next_step
    assert not (tmp_path / "out").exists()


def test_a_command_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="cannot start: no-such-program"):
        run(request(tmp_path, "no-such-program"))


def test_a_command_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="wrote nothing"):
        run(request(tmp_path, "true"))


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(JobFailed, match=r"longer than its timeoutS of 0.3 s") as error:
        run(request(tmp_path, "sh", "-c", "sleep 600; true", timeout_s=0.3))
    assert error.value.kind is FailureKind.DEADLINE
    assert time.monotonic() - began < 300


def test_a_stop_ends_the_command(tmp_path: Path) -> None:
    result = run(request(tmp_path, "sh", "-c", "echo half > $TUNEYARD_OUTPUT/a; sleep 60"), stop=True)
    assert result.status == "stopped"  # type: ignore[attr-defined]
    assert not (tmp_path / "out").exists()
