"""Small jobs on tiny models, run as people run them.

A claim about words, figures or files runs the command in this process, on the cluster that all tests share (`run_joined`). A claim about a
process (a signal, a kill, an embedded Ray) starts the command in a process of its own (`tuneyard`).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.builders.models import write_chats, write_model
from tests.clusters.machines import shared_warm_servers

from tuneyard.cli import main

STEPS = 40
TUNEYARD = [str(Path(sys.executable).with_name("tuneyard"))]
CLUSTER = """
import ray, sys
from tuneyard.runtime.sessions.session import ray_session
with ray_session(address=None, cpus=4, gpus=0, values={}, setup=[], secrets=[], run="cluster"):
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


def short_train(**changes: Any) -> dict[str, Any]:
    """The same in six steps, with whole weights on each worker: what runs that differ by their layout or start are compared with."""
    return train(**{"steps": 6, "strategy": {"zero": 0}, "checkpoint": {"everySteps": 6}, **changes})


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


@pytest.fixture(scope="session")
def warm_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One fork server for all ranks of these tests, as worker pods have it; tests of a job's own servers unset the variable."""
    with shared_warm_servers(tmp_path_factory.mktemp("warm"), environment(), "training") as folder:
        yield folder


def tuneyard(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; output captured, so that progress comes as plain lines."""
    return subprocess.run([*TUNEYARD, *map(str, arguments)], capture_output=True, text=True, env=environment(**changes), timeout=600)


def tuneyard_here(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """As `tuneyard`, in this process."""
    said, shown = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), redirect_stdout(shown):
        for name, value in {"TUNEYARD_HISTORY": "off", **changes}.items():
            patch.setenv(name, value)
        code = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, code, shown.getvalue(), said.getvalue())


def wait_for(path: Path, process: subprocess.Popen[str] | None = None, limit_s: float = 300) -> None:
    """Wait until the path is there, which `process` makes."""
    deadline = time.monotonic() + limit_s
    while not path.exists():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


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


RunJoined = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_joined(cluster: Cluster, warm_servers: Path) -> RunJoined:  # noqa: ARG001 - sets the environment
    """`tuneyard run JOB --out OUT …` in this process, on the cluster. Its ranks are forks of the shared servers."""

    def run(job: Path, out: Path, *options: object, **changes: str) -> subprocess.CompletedProcess[str]:
        return tuneyard_here("run", job, "--out", out, "--ray", cluster.address, *options, **{**cluster.access, **changes})

    return run


@pytest.fixture(scope="session")
def one_worker(inputs: Path, run_joined: RunJoined, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report's tasks of `train()` (`whole`) and of `short_train()` (`short`) with one worker, whose ranks are forks."""
    out = tmp_path_factory.mktemp("one") / "out"
    bodies = {"whole": train(), "short": short_train()}
    tasks = [{"name": name, "train": body, "resources": {"workers": 1}} for name, body in bodies.items()]
    done = run_joined(write_jobspec(inputs / "one.yaml", *tasks), out)
    assert done.returncode == 0, done.stderr
    assert "start cold" not in done.stderr
    told: dict[str, Any] = read_report(out)["tasks"]
    assert [task["world_size"] for task in told.values()] == [1, 1]
    return told
