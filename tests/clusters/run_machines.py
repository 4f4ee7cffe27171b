"""The machines of a local run and of an attempt, over a folder, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.runtime.attempt.assignment import Assignment
from tuneyard.runtime.attempt.log_shipper import LogShipper
from tuneyard.runtime.here import Here
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.pods import Pods
from tuneyard.runtime.sessions.start import RayStart


def job_of_commands(*commands: list[str], **spec: Any) -> JobSpec:
    """Process tasks `t1`, `t2`, …, each after the one before."""
    tasks = [
        {"name": f"t{number}", "process": {"command": command}, "dependsOn": [f"t{number - 1}"] if number > 1 else []}
        for number, command in enumerate(commands, start=1)
    ]
    return JobSpec.model_validate({"metadata": {"name": "bot"}, "spec": {**spec, "tasks": tasks}})


def assigned(folder: Path, task: str = "t1", attempt: int = 1, **changes: Any) -> Assignment:
    return Assignment(**{"task": task, "attempt": attempt, "run": "run-1", "sku": "cpu", "scratch": folder / "scratch", **changes})


def here(folder: Path, job: JobSpec | None = None, **changes: Any) -> Here:
    job = job or job_of_commands(["true"])
    ray = RayStart(job, None, values={}, secrets=[])
    return Here(job, ray, **{"output": JobOutput(str(folder / "out")), "scratch": folder / "scratch", "secrets": [], **changes})


def pods(folder: Path, job: JobSpec | None = None, assignment: Assignment | None = None, **changes: Any) -> Pods:
    assignment, out = assignment or assigned(folder), str(folder / "out")
    given: dict[str, Any] = {
        "base_dir": folder,
        "output": JobOutput(out),
        "scratch": assignment.scratch / "own",
        "logs": LogShipper(out, assignment.task, assignment.attempt, []),
        "secrets": [],
        "stop_grace_s": lambda: 30.0,
    }
    return Pods(job or job_of_commands(["true"]), assignment, **{**given, **changes})
