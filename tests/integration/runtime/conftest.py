"""Small jobs on tiny models, run as people run them: the `tuneyard` command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.models import write_chats, write_model

STEPS = 40
TUNEYARD = [str(Path(sys.executable).with_name("tuneyard"))]
CLUSTER = """
import ray, sys
context = ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and chats: where the jobs of these tests lie."""
    folder = tmp_path_factory.mktemp("inputs")
    write_model(folder / "model", max_position_embeddings=2048)
    write_chats(folder / "chats.jsonl")
    return folder


def train(**changes: Any) -> dict[str, Any]:
    """A train task's body: supervised, full, two workers under ZeRO-2, a checkpoint every five steps."""
    fields = {
        "model": {"name": "model"},
        "data": {"source": "chats.jsonl", "maxLength": 64},
        "optimizer": {"learningRate": 1e-3},
        "batch": {"global": 8, "micro": 2},
        "steps": STEPS,
        "strategy": {"zero": 2},
        "checkpoint": {"everySteps": 5, "keep": 2},
    }
    return {**fields, **changes}


WriteJob = Callable[..., Path]


@pytest.fixture
def write_job(inputs: Path, request: pytest.FixtureRequest) -> WriteJob:
    """Writes a JobSpec of these tasks beside the inputs and returns its path."""

    def write(*tasks: dict[str, Any], **spec: Any) -> Path:
        return write_jobspec(inputs / f"{request.node.name}.yaml", *tasks, **spec)

    return write


def write_jobspec(path: Path, *tasks: dict[str, Any], **spec: Any) -> Path:
    job = {
        "apiVersion": "tuneyard.dev/v1alpha1",
        "kind": "JobSpec",
        "metadata": {"name": "small"},
        "spec": {**spec, "tasks": list(tasks)},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TUNEYARD_HISTORY": "off", **changes}


def tuneyard(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; output captured, so that progress comes as plain lines."""
    return subprocess.run([*TUNEYARD, *map(str, arguments)], capture_output=True, text=True, env=environment(**changes), timeout=600)


def read_report(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running Ray cluster to join, so that not every test starts one."""
    folder = tmp_path_factory.mktemp("r")
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.5"),
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "Ray did not start"
    yield address
    process.communicate("", timeout=60)
