"""The check of a GPU, rehearsed on a processor: as on a machine that has other versions, and neither Ray, vLLM nor DeepSpeed of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu.cases import CASES, cases_of
from benchmarks.gpu.runner import SECOND, SECTIONS
from tests.servers.gpu_machine import carried_wheels, imitated_python
from tests.servers.gpu_packages import ROOT
from tests.servers.installed import CACHE


def check(folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Rows and report of a rehearsal. Compiled code is kept in the user's cache."""
    own = {"TUNEYARD_CHECK_CPU": "1", "PYTHON": imitated_python(), "WHEELS": str(carried_wheels())}
    places = {"OUT": str(folder / "out"), "WORK": str(folder / "work"), "XDG_CACHE_HOME": str(CACHE.parent)}
    command = ["bash", "scripts/gpu_check.sh", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **own, **places}, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]
    errors = [row for row in rows if "error" in row and "attention" not in row]  # a processor has one path of attention
    assert not errors, errors
    return rows, done.stdout


def ends(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["section"]: row["ended"] for row in rows if "ended" in row}


def assert_trained(rows: list[dict[str, Any]], names: list[str]) -> None:
    trained = {row["case"]: row for row in rows if "case" in row}
    assert list(trained) == names
    for name, row in trained.items():
        assert row["losses"][-1] < row["losses"][0] or len(row["losses"]) == 2, name  # the first step warms the learning rate up


def test_it_trains_and_reports_on_a_machine_with_other_versions(tmp_path: Path) -> None:
    rows, report = check(tmp_path, "facts", "train-1b")

    assert ends(rows) == {"facts": "ended with 0", "train-1b": "ended with 0"}
    packages = next(row["packages"] for row in rows if "packages" in row)
    assert (packages["torch"][:4], packages["transformers"]) == ("2.11", "5.17.0")
    names = [case.name for case in cases_of("train-1b")]
    assert_trained(rows, names)
    assert [name for name in names if f"| {name} |" not in report] == []
    assert not (tmp_path / "work" / "tuneyard-gpu-check" / "models").exists()
    assert not list(tmp_path.rglob("checkpoints/step-*"))


@pytest.mark.long
def test_the_whole_check_runs_in_every_section(tmp_path: Path) -> None:
    """`test_it_trains_and_reports_on_a_machine_with_other_versions` runs two of its sections."""
    rows, _ = check(tmp_path)

    assert ends(rows) == {section.name: "ended with 0" for section in SECTIONS}
    assert_trained(rows, [case.name for case in CASES])
    assert {row["op"] for row in rows if "op" in row} == {"CPUAdamBuilder", "PinMemoryBuilder", "AsyncIOBuilder"}
    assert {row["outcome"] for row in rows if "test" in row} == {"skipped"}


@pytest.mark.long
def test_every_trial_of_the_second_part_runs(tmp_path: Path) -> None:
    """`test_a_trial_is_reported_beside_what_was_expected` reports one that did not run."""
    rows, report = check(tmp_path, "--second")

    assert ends(rows) == {section.name: "ended with 0" for section in SECOND}
    assert {row.get("trial", row["section"]) for row in rows if "trial" in row or "largest" in row} == {section.name for section in SECOND}
    assert "nothing was compiled" not in report
