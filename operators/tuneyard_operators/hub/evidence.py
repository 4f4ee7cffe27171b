"""Diagnoses an attempt that cannot report, from its pods and RayJob: the kind of failure, its cause in words, the node to blame. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneyard.api import Failure, FailureKind
from tuneyard.api.secrets import redact
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.rendering import AUTOSCALER

_CANNOT_PULL = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_CANNOT_CONFIGURE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_GONE_REASONS = ("NodeLost", "NodeShutdown", "Terminated", "Shutdown", "NodeAffinity")
_WANTED_BACK = ("PreemptionByScheduler", "EvictionByEvictionAPI")
_LAST_WORDS = 1500
_SETUP = "the setup command "
Pod = Mapping[str, Any]


def is_head(pod: Pod) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("ray.io/node-type") == "head")


def failure_of(observed: Observed, *, pulls_failing_s: float, image_grace_s: float) -> Failure | None:
    """The failure that the objects of an attempt prove; None if the attempt may still succeed.

    `pulls_failing_s`: seconds for which an image could not be pulled. Short failures are tolerated: registries fail for a moment now and
    then.
    """
    for pod in (*observed.remains, *observed.pods):
        found = _of_containers(pod)
        if found is not None:
            return found
    for pod in (*observed.pods, *observed.remains):
        found = _of_pod(pod, observed.unready_nodes)
        if found is not None:
            return found
    waiting = list(_waiting(observed.pods))
    for pod, reason, message in waiting:
        if reason in _CANNOT_PULL and pulls_failing_s >= image_grace_s:
            return Failure(
                kind=FailureKind.IMAGE,
                message=f"the image {_image(pod)} cannot be pulled: {message or reason}",
                next_step="correct spec.image, or give the member credentials for it (Cluster.spec.imagePullSecrets)",
                node=pod["spec"].get("nodeName", ""),
            )
        if reason in _CANNOT_CONFIGURE and pulls_failing_s >= image_grace_s:
            return Failure(
                kind=FailureKind.USER_ERROR,
                message=f"a container cannot be created: {message or reason}",
                next_step="see the message; often a Secret or a key in it is missing on the member",
                node=pod["spec"].get("nodeName", ""),
            )
    return _of_rayjob(observed.rayjob)


def is_pulling(observed: Observed) -> bool:
    """True while a container waits for an image that cannot be pulled, or for a missing Secret."""
    return any(reason in (*_CANNOT_PULL, *_CANNOT_CONFIGURE) for _, reason, _ in _waiting(observed.pods))


def progress_of_start(observed: Observed) -> str:
    """One line about an attempt whose ranks have not started."""
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in observed.pods)
    counted = f"{running} of {len(observed.pods)} pods run" if observed.pods else "waits for KubeRay to make its pods"
    return why_waiting(observed.pods) or counted


def why_waiting(pods: Sequence[Pod]) -> str:
    """What a container or pod waits for, beside what every pod waits for at its start; empty: for nothing."""
    for pod, reason, message in _waiting(pods):
        if reason not in ("PodInitializing", "ContainerCreating"):
            return f"{pod['metadata']['name']}: {reason}: {message}".rstrip(": ")
    for pod in pods:
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{pod['metadata']['name']} waits for a node: {condition.get('message', '')}"
    return ""


def _waiting(pods: Sequence[Pod]) -> Iterator[tuple[Pod, str, str]]:
    for pod in pods:
        for status in _container_statuses(pod):
            waiting = status.get("state", {}).get("waiting")
            if waiting:
                yield pod, waiting.get("reason", ""), waiting.get("message", "")


def _of_containers(pod: Pod) -> Failure | None:
    """The failure of a container that ended by itself; None if there is none."""
    node = pod["spec"].get("nodeName", "")
    for status in _own_statuses(pod):
        ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
        if not ended or ended.get("exitCode", 0) == 0:
            continue
        message = (ended.get("message") or "").strip()
        if _SETUP in message:
            return Failure(
                kind=FailureKind.USER_ERROR,
                message=message.splitlines()[0].rstrip(":"),
                next_step="run that command by hand, correct `setup` in the JobSpec, and start again",
                log_tail="\n".join(message.splitlines()[1:]),
            )
        if ended.get("reason") == "OOMKilled":
            return Failure(
                kind=FailureKind.OUT_OF_MEMORY,
                message=f"{pod['metadata']['name']} exceeded its limit of host memory, and was killed",
                next_step="raise memoryPerGpu of the SKU, or use less: fewer data workers, no offload to cpu",
                node=node,
            )
    return None


def _of_pod(pod: Pod, unready_nodes: frozenset[str]) -> Failure | None:
    """The failure of a pod that was evicted, or lost with its node; None if it was neither."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            kind = FailureKind.PREEMPTED if condition.get("reason") in _WANTED_BACK else FailureKind.NODE_LOST
            words = condition.get("message") or condition.get("reason", "")
            return Failure(kind=kind, message=f"{name} was evicted from node {node}: {words}", node=node)
    if status.get("reason") == "Evicted":
        return Failure(kind=FailureKind.NODE_LOST, message=f"{name} was evicted from node {node}: {status.get('message', '')}", node=node)
    if status.get("phase") == "Failed" and status.get("reason") in _GONE_REASONS:
        return Failure(kind=FailureKind.NODE_LOST, message=f"node {node} was lost while {name} ran on it", node=node)
    if node in unready_nodes and status.get("phase") in ("Running", "Pending"):
        return Failure(kind=FailureKind.NODE_LOST, message=f"node {node}, on which {name} runs, does not answer", node=node)
    if is_head(pod) and status.get("phase") == "Failed":
        code, words = _end_of(pod)
        how = f"ended with exit code {code}" if code is not None else "failed"
        return Failure(kind=FailureKind.NODE_LOST, message=f"the head pod {name} {how} on node {node}", node=node, log_tail=words)
    return None


def _end_of(pod: Pod) -> tuple[int | None, str]:
    """Exit code and termination message of the failed container; None and an empty text if its node has not told."""
    for status in _own_statuses(pod):
        ended = status.get("state", {}).get("terminated")
        if ended and ended.get("exitCode"):
            return ended["exitCode"], redact((ended.get("message") or "").strip()[-_LAST_WORDS:])
    return None, ""


def _of_rayjob(rayjob: Mapping[str, Any] | None) -> Failure | None:
    status = (rayjob or {}).get("status") or {}
    if status.get("jobDeploymentStatus") not in ("Failed", "ValidationFailed"):
        return None
    reason, message = status.get("reason", ""), (status.get("message") or "").strip()
    if reason == "DeadlineExceeded":
        return Failure(kind=FailureKind.DEADLINE, message="the job's deadline has passed")
    if status.get("jobDeploymentStatus") == "ValidationFailed":
        return Failure(kind=FailureKind.INTERNAL, message=f"KubeRay refuses the RayJob: {message}")
    words = f"the Ray job failed ({reason or 'no reason given'}): {message[:500] or 'no message'}"
    return Failure(kind=FailureKind.INTERNAL, message=words)


def _container_statuses(pod: Pod) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _own_statuses(pod: Pod) -> list[Mapping[str, Any]]:
    """Statuses without KubeRay's autoscaler. An attempt survives its end: only the number of data workers then stays fixed."""
    return [status for status in _container_statuses(pod) if status.get("name") != AUTOSCALER]


def _image(pod: Pod) -> str:
    return str(pod["spec"]["containers"][0].get("image", ""))
