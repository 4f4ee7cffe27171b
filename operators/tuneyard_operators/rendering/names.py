"""Names and labels of an attempt's objects on a member."""

from __future__ import annotations

from collections.abc import Mapping

from tuneyard.kubernetes.names import cut

JOB = "tuneyard.dev/job"
NAMESPACE_LABEL = "tuneyard.dev/job-namespace"
UID = "tuneyard.dev/job-uid"
TASK = "tuneyard.dev/task"
ATTEMPT = "tuneyard.dev/attempt"
DOOR = "tuneyard.dev/door"
"""Label of the pod that hears requests for a server that sleeps."""
JOB_LABELS = JOB
"""Label selector of all objects that belong to a job."""

_JOB_LENGTH, _TASK_LENGTH, _UID_LENGTH = 18, 10, 8


def attempt_name(job: str, uid: str, task: str, number: int) -> str:
    """Name of an attempt's RayJob, AttemptReport and Secret: at most 45 characters, as KubeRay allows 47.

    The uid distinguishes jobs of one name in several namespaces, and a job from an earlier one of the same name.
    """
    if not 1 <= number <= 99999:
        raise ValueError(f"attempt number {number} is out of range")
    short = uid.replace("-", "")[:_UID_LENGTH]
    return f"{cut(job, _JOB_LENGTH)}-{cut(task, _TASK_LENGTH)}-{short}-{number}"


def service_name(labels: Mapping[str, str]) -> str:
    """Name of the Service of a serve task, the same for all its attempts: a DNS label that begins with a letter."""
    short = labels[UID].replace("-", "")[:_UID_LENGTH]
    return f"serve-{cut(labels[JOB], _JOB_LENGTH)}-{cut(labels[TASK], _TASK_LENGTH)}-{short}"


def labels_of(job: str, namespace: str, uid: str, task: str, number: int) -> dict[str, str]:
    return {JOB: job, NAMESPACE_LABEL: namespace, UID: uid, TASK: task, ATTEMPT: str(number)}
