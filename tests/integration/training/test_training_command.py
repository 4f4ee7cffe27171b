"""`python -m tuneyard.training`: a task without Ray, alone and under torchrun."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.builders.models import train_task
from tests.integration.training.conftest import Material

from tuneyard.training.command import main
from tuneyard.training.quick_imports import UNUSED


@pytest.fixture
def job(material: Material, tmp_path: Path) -> Path:
    task = train_task(material.model, material.text, steps=4, strategy={"zero": 0, "precision": "fp32"}, batch={"global": 8, "micro": 2})
    spec = {
        "apiVersion": "tuneyard.dev/v1alpha1",
        "kind": "JobSpec",
        "metadata": {"name": "tiny"},
        "spec": {"tasks": [{"name": "tune", "train": task.to_yaml_dict()}]},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def test_one_process_and_torchrun_give_the_same_losses(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "tuneyard.training"]
    together = subprocess.run(
        [sys.executable, "-W", "ignore", *ranks, str(job), "--task", "tune", "--out", str(tmp_path / "together")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"},
    )
    alone = main([str(job), "--task", "tune", "--out", str(tmp_path / "alone")])

    assert alone == 0
    assert together.returncode == 0, together.stderr
    assert all("step 4/4  loss" in shown for shown in (capsys.readouterr().out, together.stdout))
    loaded = {line.rpartition("|")[2].strip() for line in together.stderr.splitlines() if line.startswith("import time:")}
    assert "tuneyard.training.trainer" in loaded
    hidden = {"mlflow", "comet_ml", "scipy"} & set(UNUSED)
    assert all(map(importlib.util.find_spec, hidden))
    assert len(hidden) == 3
    assert [name for name in loaded if name.partition(".")[0] in hidden and "." in name] == [], "each takes seconds of every start"
    results = [json.loads((tmp_path / name / "tune" / "result.json").read_text()) for name in ("alone", "together")]
    assert [result["world_size"] for result in results] == [1, 2]
    assert results[1]["losses"] == pytest.approx(results[0]["losses"], rel=1e-3)

    job.write_text(job.read_text().replace("global: 8", "global: auto").replace("micro: 2", "micro: 8"))
    assert main([str(job), "--task", "tune", "--out", str(tmp_path / "open")]) == 0
    assert json.loads((tmp_path / "open" / "tune" / "rows.json").read_text())["rows"] == 8
    result = json.loads((tmp_path / "open" / "tune" / "result.json").read_text())
    assert result["losses"] == pytest.approx(results[0]["losses"], rel=1e-3)


def test_a_task_that_is_not_there_is_named(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([str(job), "--task", "other", "--out", str(tmp_path)])

    said = capsys.readouterr().err
    assert code == 2
    assert "no train task 'other'" in said
    assert "tune" in said
    assert "Traceback" not in said
