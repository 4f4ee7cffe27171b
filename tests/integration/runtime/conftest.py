"""Small jobs on tiny models, run as people run them: the `tuneyard` command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.builders.models import write_chats, write_model
from tests.clusters.machines import shared_warm_servers

STEPS = 40
TUNEYARD = [str(Path(sys.executable).with_name("tuneyard"))]
CLUSTER = """
import ray, sys
from tuneyard.runtime.sessions.session import ray_session
with ray_session(address=None, cpus=4, gpus=0, values={}, setup=[], secrets=[], job="cluster"):
    print(ray.get_runtime_context().gcs_address, file=sys.__stdout__, flush=True)
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


@pytest.fixture(scope="session", autouse=True)
def warm_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One fork server per stack for all jobs of these tests, as worker pods have them; tests of a job's own servers unset the variable."""
    with shared_warm_servers(tmp_path_factory.mktemp("warm"), environment()) as folder:
        yield folder


def tuneyard(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; output captured, so that progress comes as plain lines."""
    return subprocess.run([*TUNEYARD, *map(str, arguments)], capture_output=True, text=True, env=environment(**changes), timeout=600)


def read_report(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@dataclass(frozen=True)
class Cluster:
    """A running Ray cluster: where it is, and the variables that let a process in."""

    address: str
    access: dict[str, str]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster to join, so that not every test starts one."""
    access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex}
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**access),
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "Ray did not start"
    yield Cluster(address, access)
    process.communicate("", timeout=60)
