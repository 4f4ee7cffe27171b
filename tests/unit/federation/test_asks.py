"""What the scheduler is asked for, from a JobSpec and its status."""

from __future__ import annotations

import pytest

from tuneyard.api import Attempt, JobSpec, JobStatus, PlacementStatus, parse
from tuneyard.federation import ask_of

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
