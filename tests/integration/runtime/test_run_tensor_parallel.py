"""`tuneyard run` on a mesh of two data by two tensor-parallel workers: the losses of one worker, for two families of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import WriteJob, read_report, train, tuneyard
from tests.tensor_training import write_any_model

pytestmark = pytest.mark.timeout(900)
STEPS = 10


def task_of(kind: str, workers: int, **strategy: Any) -> dict[str, Any]:
    body = train(model={"name": kind}, steps=STEPS, strategy={"zero": 0, **strategy}, checkpoint={"everySteps": STEPS})
    return {"name": f"{kind.replace('_', '-')}-{workers}", "train": body, "resources": {"workers": workers}}


@pytest.mark.parametrize("kind", [pytest.param("llama", marks=pytest.mark.long), "gpt_neox"])
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

    done = tuneyard("run", write_job(odd), "--out", tmp_path / "out")

    assert done.returncode == 2
    assert "workers that make no whole number of groups" in done.stderr
    assert not (tmp_path / "out" / "odd").exists()
