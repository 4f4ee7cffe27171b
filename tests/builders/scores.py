"""Requests of score tasks, made from a file and admitted as `tuneyard run` does it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tuneyard.admission import Machine
from tuneyard.api import load_jobspec
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import resolve_engine_plan
from tuneyard.ranking import holds_ranker
from tuneyard.runtime.checks import check_job
from tuneyard.runtime.models import read_config
from tuneyard.runtime.references import resolved
from tuneyard.runtime.score.run import score_request as request_of_run
from tuneyard.runtime.task_context import TaskContext
from tuneyard.scoring import ScoreRequest


def score_request(folder: Path, output: str, score: dict[str, Any], *, instances: int = 1) -> ScoreRequest:
    """A request of a task with the body `score`, whose JobSpec lies in `folder` and whose output is `folder`/`output`.

    Raises BadInput where the file, the rules, the machine or the plan of the engine refuse it.
    """
    task = {"name": "judge", "score": score, "resources": {"instances": instances}}
    spec = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "test"}, "spec": {"tasks": [task]}}
    file = folder / f"{output}.json"
    file.write_text(json.dumps(spec))
    job, machine = load_jobspec(file), Machine("cpu", os.cpu_count() or 1)
    check_job(job, base_dir=folder, machine=machine)
    places = SimpleNamespace(task_uri=lambda _: str(folder / output))
    context = SimpleNamespace(job=job, machine=machine, output=places, scratch=folder / "scratch")
    request = request_of_run(*resolved(job.spec.tasks[0], folder, {}), cast(TaskContext, context))
    if not holds_ranker(request.model_uri):
        resolve_engine_plan(request.task, shape_from_config(read_config(request.model_uri)), gpu("cpu"), instances=instances)
    return request
