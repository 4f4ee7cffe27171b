"""What the scheduler is asked for, from a JobSpec and its status."""

from __future__ import annotations

import pytest

from tuneyard.api import Attempt, JobSpec, JobStatus, PlacementStatus, parse
from tuneyard.federation import ask_of
from tuneyard.federation.from_api import SERVES_S, attempts_of

JOB = """
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {{name: bot}}
spec:
  retries: {{onNodeFailure: {answer}}}
  tasks:
  - name: train
    train: {{model: {{name: gpt2}}, data: {{source: s3://corpus/chats}}}}
"""


@pytest.mark.parametrize(("answer", "avoided"), [("elsewhere", {("dca", "n7")}), ("retry", set())])
def test_a_machine_that_failed_is_avoided_unless_the_job_says_retry(answer: str, avoided: set[tuple[str, str]]) -> None:
    (job,) = parse(JOB.format(answer=answer), "job.yaml")
    assert isinstance(job, JobSpec)
    place = PlacementStatus(cluster="dca", sku="a100-80gb", workers=8)
    failed = Attempt(number=1, task="train", token=1, placement=place, failure="NodeLost", failed_node="n7")
    assert ask_of(job, 0.0, "train", JobStatus(attempts=[failed])).avoid == avoided


def trained(workers: object, **strategy: int) -> JobSpec:
    train = {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 24}, "strategy": strategy}
    task = {"name": "train", "train": train, "resources": {"workers": workers, "sku": ["h100-80gb"]}}
    return JobSpec.model_validate({"metadata": {"name": "a", "namespace": "maps"}, "spec": {"tasks": [task]}})


def test_ranks_that_share_weights_share_a_machine_and_worlds_are_whole_replicas() -> None:
    fixed = ask_of(trained(8, tensorParallel=4), 0.0, "train", JobStatus())
    elastic = ask_of(trained({"min": 2, "max": 16}, tensorParallel=4), 0.0, "train", JobStatus())

    assert (fixed.worlds, fixed.unit, fixed.engines) == ((8,), 4, False)
    assert elastic.worlds == (16, 12, 8, 4)
    assert ask_of(trained(8), 0.0, "train", JobStatus()).unit == 1


def test_a_server_asks_for_the_gpus_of_one_machine_and_holds_them_without_an_end() -> None:
    task = {"name": "serve", "serve": {"models": [{"name": "m"}], "tensorParallel": 4}, "resources": {"sku": ["h100-80gb"]}}
    spec = {"tasks": [task], "env": [{"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}]}
    job = JobSpec.model_validate({"metadata": {"name": "a", "namespace": "maps"}, "spec": spec})
    ask = ask_of(job, 0.0, "serve", JobStatus())
    assert (ask.worlds, ask.unit, ask.engines, ask.preemptible) == ((4,), 4, True, False)

    place = PlacementStatus(cluster="dca", sku="h100-80gb", workers=1, gpus=4, nodes={"n1": 4}, seconds=60)
    held = Attempt(number=1, task="serve", token=1, placement=place, placed_at="1970-01-01T00:00:00Z")
    (running,) = attempts_of("maps/a", spec, "maps", JobStatus(attempts=[held]), 5000.0, 120.0)
    assert (running.ends, running.preemptible) == (5000.0 + SERVES_S, False)
