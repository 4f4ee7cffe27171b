"""A job whose rows are split over two workers, from the command to the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.runtime.conftest import WriteJob, read_report, train, tuneyard

SHORT = {"steps": 6, "checkpoint": {"everySteps": 6}}


def test_rows_over_two_workers_give_the_losses_of_one(write_job: WriteJob, tmp_path: Path) -> None:
    alone = {"name": "alone", "train": train(strategy={"zero": 0}, **SHORT), "resources": {"workers": 1}}
    strategy = {"zero": 2, "contextParallel": 2}
    split = {"name": "split", "train": train(strategy=strategy, **SHORT), "resources": {"workers": 2}}
    job = write_job(alone, split)

    done = tuneyard("run", job, "--out", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    tasks = read_report(tmp_path / "out")["tasks"]
    assert tasks["split"]["plan"]["context_parallel"] == 2
    assert tasks["split"]["losses"] == pytest.approx(tasks["alone"]["losses"], abs=1e-4)
    assert tasks["split"]["tokens"] == tasks["alone"]["tokens"]
    assert "rows over 2 ranks" in (tmp_path / "out" / "report.html").read_text()


def test_a_degree_that_the_heads_do_not_divide_into_has_no_plan(write_job: WriteJob) -> None:
    strategy = {"zero": 0, "contextParallel": 8}
    task = {"name": "split", "train": train(strategy=strategy, **SHORT), "resources": {"workers": 8}}

    refused = tuneyard("plan", write_job(task))

    assert "8 ranks cannot share 4 attention heads evenly" in refused.stdout
    assert "set strategy.contextParallel to 1 or 2 or 4" in refused.stdout
