"""Renders the RayJob of an attempt: a head without GPUs, which drives the ranks, and one group of equal worker pods, the gang."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tuneyard.api import STOP_GRACE_S, Attempt, BadInput, Cluster, JobSpec
from tuneyard.tracing import attempt_context
from tuneyard_operators.rendering.autoscaler import autoscaling
from tuneyard_operators.rendering.names import labels_of
from tuneyard_operators.rendering.pods import Pods

RAY_VERSION = "2.60.0"
"""Ray's version in the images, as locked in requirements/. KubeRay chooses cheap health checks by it."""
_DEADLINE_SLACK_S = 480
"""Seconds that KubeRay's deadline is later than the job's, beside the grace period."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Values that JobSpec and Cluster leave open. `output`: URI prefix; jobs get a folder of their own below it.

    `stop_grace_s`: seconds that a stopping attempt, or a pod of it that is evicted, has to end.
    """

    image: str = ""
    output: str = ""
    stop_grace_s: float = STOP_GRACE_S
    traces: bool = False
    """Whether the hub sends traces. Containers then get the `TRACEPARENT` of their attempt, for spans of their own."""


def rayjob(
    job: JobSpec,
    uid: str,
    attempt: Attempt,
    cluster: Cluster,
    output: str,
    defaults: Defaults,
    *,
    isolated: bool = False,
    autoscaled: bool = False,
    past_runs: str = "",
) -> dict[str, Any]:
    """The RayJob that runs `attempt`. Raises BadInput if no image is known.

    `uid`: of the JobSpec object; `output`: URI of the job's output; `isolated`: whether its pods have a NetworkPolicy of their own;
    `autoscaled`: whether the pods of data workers are autoscaled; `past_runs`: runs that a search learns from (`tuning.passed_on`).
    """
    assert attempt.placement is not None
    pods = Pods(
        job,
        uid,
        attempt,
        attempt.placement,
        cluster,
        output,
        _image(job, cluster, defaults),
        isolated,
        autoscaled,
        defaults.stop_grace_s,
        attempt_context(_traced(job, uid), attempt.task, attempt.number).traceparent if defaults.traces else "",
        past_runs,
    )
    labels = labels_of(job.metadata.name, job.metadata.namespace, uid, attempt.task, attempt.number)
    queue = cluster.spec.local_queue
    spec: dict[str, Any] = {
        "entrypoint": "tuneyard attempt",
        "submissionMode": "HTTPMode",
        "backoffLimit": 0,  # the hub makes further attempts, each with a number of its own
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 0,
        "rayClusterSpec": {
            "rayVersion": RAY_VERSION,
            **(autoscaling(cluster, platform_image(cluster, defaults)) if autoscaled else {}),
            "authOptions": {"mode": "token"},  # KubeRay makes a token per Ray cluster, known to its pods alone
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"}, "template": pods.head()},
            "workerGroupSpecs": [pods.worker_group(), *pods.data_groups()] if attempt.placement.pods else [],
        },
    }
    if job.spec.deadline is not None:  # for a hub that is down: otherwise the hub ends the job, with a checkpoint
        spec["activeDeadlineSeconds"] = math.ceil(job.spec.deadline + defaults.stop_grace_s) + _DEADLINE_SLACK_S
    if queue is not None:
        labels["kueue.x-k8s.io/queue-name"] = queue
        spec["suspend"] = True
    return {"metadata": {"name": attempt.name, "labels": labels}, "spec": spec}


def platform_image(cluster: Cluster, defaults: Defaults) -> str:
    """The image of jobs without spec.image; empty if neither the cluster nor the hub names one."""
    return cluster.spec.image or defaults.image


def _image(job: JobSpec, cluster: Cluster, defaults: Defaults) -> str:
    image = job.spec.image or platform_image(cluster, defaults)
    if not image:
        raise BadInput("the job names no image, and neither does the cluster or the hub", "set spec.image, or the hub's --image")
    return image


def _traced(job: JobSpec, uid: str) -> dict[str, Any]:
    return {"uid": uid, "annotations": job.metadata.annotations}
