"""`tuneyard run` with weights, or rows, that are split over workers: the losses are those of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import RunJoined, WriteJob, read_report, short_train, train, tuneyard, tuneyard_here
from tests.ranks.tensor_training import write_any_model

pytestmark = pytest.mark.timeout(900)
STEPS = 10


def task_of(kind: str, workers: int, **strategy: Any) -> dict[str, Any]:
    body = train(model={"name": kind}, steps=STEPS, strategy={"zero": 0, **strategy}, checkpoint={"everySteps": STEPS})
    return {"name": f"{kind.replace('_', '-')}-{workers}", "train": body, "resources": {"workers": workers}}


def test_split_weights_and_split_rows_give_the_losses_of_one_worker(
    write_job: WriteJob, run_joined: RunJoined, one_worker: dict[str, Any], tmp_path: Path
) -> None:
    layouts: dict[str, dict[str, Any]] = {"weights": {"zero": 0, "tensorParallel": 2}, "rows": {"zero": 2, "contextParallel": 2}}
    tasks = [{"name": name, "train": short_train(strategy=strategy), "resources": {"workers": 2}} for name, strategy in layouts.items()]

    done = run_joined(write_job(*tasks), tmp_path / "out")

    assert done.returncode == 0, done.stderr
    told, alone = read_report(tmp_path / "out")["tasks"], one_worker["short"]
    for name in layouts:
        assert told[name]["losses"] == pytest.approx(alone["losses"], abs=1e-4), name
        assert told[name]["tokens"] == alone["tokens"]
    assert told["weights"]["plan"]["tensor_parallel"] == 2
    assert told["rows"]["plan"]["context_parallel"] == 2
    assert "rows over 2 ranks" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_four_workers_on_a_mesh_have_the_losses_of_one(kind: str, inputs: Path, write_job: WriteJob, tmp_path: Path) -> None:
    write_any_model(inputs / kind, kind, max_position_embeddings=2048)
    tasks = [task_of(kind, 1), task_of(kind, 4, tensorParallel=2)]

    done = tuneyard("run", write_job(*tasks), "--out", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    told = read_report(tmp_path / "out")["tasks"]
    alone, meshed = (told[task["name"]] for task in tasks)
    assert meshed["world_size"] == 4
    assert len(meshed["losses"]) == STEPS
    assert meshed["losses"] == pytest.approx(alone["losses"], abs=1e-4)
    assert meshed["losses"][-1] < meshed["losses"][0] - 0.5  # it has learned something that could differ
    card = (tmp_path / "out" / str(tasks[1]["name"]) / "model" / "README.md").read_text()
    assert "2 data x 2 tensor parallel" in card


def test_a_degree_that_does_not_divide_the_workers_is_refused_before_anything_starts(write_job: WriteJob, tmp_path: Path) -> None:
    odd = {"name": "odd", "train": train(strategy={"tensorParallel": 2}, batch={"global": 6}), "resources": {"workers": 3}}

    done = tuneyard_here("run", write_job(odd), "--out", tmp_path / "out")

    assert done.returncode == 2
    assert "workers that make no whole number of groups" in done.stderr
    assert not (tmp_path / "out" / "odd").exists()


def test_a_degree_that_the_heads_do_not_divide_into_has_no_plan(write_job: WriteJob) -> None:
    task = {"name": "split", "train": train(strategy={"zero": 0, "contextParallel": 8}), "resources": {"workers": 8}}

    refused = tuneyard_here("plan", write_job(task))

    assert refused.returncode == 1
    assert "8 ranks cannot share 4 attention heads evenly" in refused.stdout
    assert "set strategy.contextParallel to 1 or 2 or 4" in refused.stdout
