"""`batch.global: auto`, from a JobSpec file to its losses: decided by the first attempt, and kept by those after it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import stop_after
from tests.integration.runtime.conftest import RunJoined, WriteJob, read_report, short_train

pytestmark = pytest.mark.timeout(900)


def task(name: str, workers: int = 1, **changes: Any) -> dict[str, Any]:
    return {"name": name, "train": short_train(**{"checkpoint": {"everySteps": 3}, **changes}), "resources": {"workers": workers}}


def test_the_first_attempt_decides_the_rows_of_a_step_and_later_ones_keep_them(
    write_job: WriteJob, run_joined: RunJoined, tmp_path: Path
) -> None:
    batch = {"global": "auto", "micro": 8}
    long_rows = {"data": {"source": "chats.jsonl", "maxLength": 2048}, "model": {"name": "model", "attention": "eager"}}
    largest = task("largest", batch={"global": "auto"}, steps=1, **long_rows)
    first = write_job(task("open", batch=batch), task("named", batch={"global": 8, "micro": 8}), largest)

    done = run_joined(first, tmp_path / "first")

    assert done.returncode == 0, done.stderr
    told = read_report(tmp_path / "first")["tasks"]
    assert told["open"]["losses"] == told["named"]["losses"]
    plan, kept = told["largest"]["plan"], json.loads((tmp_path / "first" / "largest" / "rows.json").read_text())
    assert kept["rows"] == plan["micro_batch"] > 8
    assert plan["grad_accum"] == 1
    assert f"{kept['rows']:,} rows per step (batch.global: auto): {kept['rows']} x 1 on 1 x cpu" in done.stderr

    def resumed(name: str, workers: int) -> tuple[subprocess.CompletedProcess[str], Path]:
        out = tmp_path / name
        shutil.copytree(tmp_path / "first", out)
        stop_after(3, out / "open")
        (out / "open" / "result.json").unlink()
        return run_joined(write_job(task("open", workers, batch=batch)), out, "--resume"), out

    done, out = resumed("same", 1)
    assert done.returncode == 0, done.stderr
    same = read_report(out)["tasks"]["open"]
    assert (same["resumed_from"], same["losses"]) == (3, told["named"]["losses"])

    done, out = resumed("two", 2)
    assert done.returncode == 0, done.stderr
    assert "8 rows per step (batch.global: auto): 4 x 1 on 2 x cpu" in done.stderr
    two = read_report(out)["tasks"]["open"]
    assert (two["plan"]["micro_batch"], two["plan"]["grad_accum"], two["world_size"], two["resumed_from"]) == (4, 1, 2, 3)
    assert two["losses"] == pytest.approx(told["named"]["losses"], rel=1e-3)

    done, _ = resumed("three", 3)
    assert done.returncode == 2
    assert "the run began with 8 rows per step (batch.global: auto), and 3 copies of the model do not divide them" in done.stderr
    assert "resume with as many workers as make 2 copies" in done.stderr
