"""Every example in jobspecs/ can be started on a member: each task is rendered, and its commands are programs that the lock installs.

lora, dpo and quickstart are also run: `tests/integration`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.builders.attempts import UID, attempt

from tuneyard.api import Cluster, JobSpec, PlacementStatus, load_jobspec
from tuneyard_operators.rendering import Defaults, attempt_name, rayjob

JOBSPECS = sorted((Path(__file__).parents[3] / "jobspecs").glob("*.yaml"))
SKUS = [{"name": name, "nodes": 4, "gpusPerNode": 8} for name in ("h100-80gb", "a100-80gb", "cpu")]
MEMBER = Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": SKUS}})
TASKS = [(path.stem, task.name) for path in JOBSPECS for task in load_jobspec(path).spec.tasks]


def example(name: str) -> JobSpec:
    return load_jobspec(next(path for path in JOBSPECS if path.stem == name))


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_each_task_is_rendered(name: str, task: str) -> None:
    job = example(name)
    gang = job.spec.gang_of(job.spec.task(task))
    sku = next(iter(gang.resources.sku or job.spec.placement.skus), "cpu")
    on = PlacementStatus(cluster="east", sku=sku, workers=2, gpus=2, pods=0 if gang.process else 1, nodes={"n1": 2})
    own = attempt(1, task, placement=on, name=attempt_name(name, UID, task, 1))

    made = rayjob(job, UID, own, MEMBER, f"s3://models/{name}", Defaults(image="registry/tuneyard:1"))

    head = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    script = " ".join(head["command"]).replace("$$", "$")  # as the kubelet passes it on
    assert all(shlex.quote(line) in script for line in job.spec.setup)
    assert made["spec"]["entrypoint"] == "tuneyard attempt"


@pytest.mark.parametrize("path", JOBSPECS, ids=lambda path: path.stem)
def test_each_command_is_there_with_its_options(path: Path) -> None:
    spec = load_jobspec(path).spec
    for words in [*(shlex.split(line) for line in spec.setup), *(task.process.command for task in spec.tasks if task.process)]:
        assert missing(words) == []


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("huggingface-cli login --token $HF_TOKEN", "huggingface-cli"),
        ("hf auth logon --token $HF_TOKEN", "hf auth logon"),
        ("hf auth login --tokken $HF_TOKEN", "--tokken"),
        ("python -m tuneyard.data.stdlb $TUNEYARD_OUTPUT", "python -m tuneyard.data.stdlb"),
    ],
)
def test_a_command_that_is_not_there_is_found(line: str, lacks: str) -> None:
    assert missing(shlex.split(line)) == [lacks]


def missing(words: list[str]) -> list[str]:
    """What of a command does not exist: the program with its verbs, or options. Asked by `--help`."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    is_module = words[:2] == ["python", "-m"]
    end = 3 if is_module else next((place for place, word in enumerate(words) if word[:1] in "-$"), len(words))
    told = help_of(tuple(words[:end]))
    if told is None:
        return [words[0] if program(words[0]) is None else " ".join(words[:end])]
    return [option for option in options if not re.search(rf"{option}\b", told)]


def program(name: str) -> Path | None:
    """Beside this Python, where the lock puts what it installs: in images nothing else can be counted on."""
    path = Path(sys.executable) if name == "python" else Path(sys.executable).with_name(name)
    return path if path.exists() else None


@cache
def help_of(words: tuple[str, ...]) -> str | None:
    path = program(words[0])
    if path is None:
        return None
    done = subprocess.run([str(path), *words[1:], "--help"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
