"""What a runner makes of the report and the process of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import Phase
from tuneyard.runtime.scheduled.results import RUN_ID, is_in_use, result_at

SCORED = {"metrics": {"exact_match": 0.5}, "intervals": {"exact_match": [0.4, 0.6]}, "rows": 40, "status": "succeeded"}


def report(folder: Path, **values: Any) -> str:
    (folder / "report.json").write_text(json.dumps({"job": "x", "status": "succeeded", "tasks": {"judge": SCORED}, **values}))
    return str(folder)


def test_figures_and_their_bounds_are_those_of_the_report(tmp_path: Path) -> None:
    found = result_at(report(tmp_path), 0)
    (figure, rows) = sorted(found.figures(["rows"]), key=lambda each: each.name)
    assert (found.phase, figure.task, figure.value, figure.low, figure.high) == (Phase.SUCCEEDED, "judge", 0.5, 0.4, 0.6)
    assert rows.value == 40


@pytest.mark.parametrize(
    ("status", "code", "phase"),
    [
        ("succeeded", None, Phase.SUCCEEDED),
        ("failed", 1, Phase.FAILED),
        ("failed", None, Phase.FAILED),
        ("stopped", 1, Phase.PENDING),
        ("running", None, Phase.PENDING),
        ("running", -15, Phase.PENDING),
        ("running", 130, Phase.PENDING),
        ("running", -9, Phase.FAILED),
        ("running", 2, Phase.FAILED),
        ("running", 1, Phase.FAILED),
        ("succeeded", 1, Phase.FAILED),
        ("succeeded", 2, Phase.FAILED),
        ("succeeded", -9, Phase.SUCCEEDED),
        ("succeeded", -15, Phase.SUCCEEDED),
    ],
)
def test_phases(tmp_path: Path, status: str, code: int | None, phase: Phase) -> None:
    assert result_at(report(tmp_path, status=status), code).phase is phase


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.FAILED), (1, Phase.FAILED), (2, Phase.FAILED), (None, Phase.PENDING)])
def test_the_report_of_another_run_of_the_same_name_does_not_count(tmp_path: Path, code: int | None, phase: Phase) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"metadata": {"name": "x", "annotations": {RUN_ID: "theirs"}}}))
    found = result_at(report(tmp_path), code, run="ours")
    assert (found.phase, found.tasks) == (phase, {})
    assert result_at(report(tmp_path), 0, run="theirs").phase is Phase.SUCCEEDED


def test_a_run_without_a_report_says_what_its_log_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("starting\nerror: no such file\nnext: check the path\n")
    found = result_at(str(tmp_path / "nothing"), 2, log)
    assert (found.phase, found.message) == (Phase.FAILED, "no such file")
    (tmp_path / "report.json").write_text("{")
    assert result_at(str(tmp_path), 0).phase is Phase.FAILED


def test_a_failed_command_is_told_with_its_last_line(tmp_path: Path) -> None:
    found = result_at(report(tmp_path, status="failed", message="the command of task sweep exited 1:\n  reading\n  no such table"), 1)
    assert found.message == "the command of task sweep exited 1: no such table"


def test_an_output_without_a_lock_is_not_in_use(tmp_path: Path) -> None:
    assert not is_in_use(str(tmp_path))
    assert not is_in_use("s3://bucket/x")
