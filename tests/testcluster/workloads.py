"""Pods and RayJobs that fit the test clusters, for tests of the harness and of what runs beside Tuneyard's own jobs."""

from __future__ import annotations

import sys
from typing import Any

from tests.testcluster.images import HOST_IMAGE, ROOT, USER_ID, pod_template
from tests.testcluster.member import Member

_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_HEALTHY = {"httpGet": {"path": "/api/local_raylet_healthz", "port": 52365}, "initialDelaySeconds": 5, "failureThreshold": 60}
_PROBES = {"livenessProbe": _HEALTHY, "readinessProbe": {**_HEALTHY, "periodSeconds": 2}}
"""KubeRay's own start a shell and two wgets in every pod every five seconds: a third of a small machine."""


def pod(name: str, command: list[str], member: Member, *, slots: int = 0) -> dict[str, Any]:
    """A pod that runs `command` once, with this machine's programs and Python."""
    limits = {"tuneyard.dev/slot": str(slots)} if slots else {}
    container = {"name": "main", "command": command, "resources": {"limits": limits}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": _pod_spec(container, member)}


def rayjob(name: str, entrypoint: str, member: Member, *, workers: int = 1) -> dict[str, Any]:
    """A RayJob with a head and `workers` pods, each of them with one of the Ray resource `pod`."""
    start = {"num-cpus": "1", "resources": '"{\\"pod\\": 1}"', "object-store-memory": "100000000"}
    head = {"rayStartParams": {**start, "dashboard-host": "0.0.0.0"}, "template": {"spec": _pod_spec({"name": "head", **_PROBES}, member)}}
    group = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": workers,
        "maxReplicas": workers,
        "rayStartParams": start,
        "template": {"spec": _pod_spec({"name": "worker", **_PROBES}, member)},
    }
    spec = {
        "entrypoint": entrypoint,
        "submissionMode": "HTTPMode",
        "backoffLimit": 0,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": [group]},
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec}


def allreduce(name: str, member: Member, *, workers: int = 1) -> dict[str, Any]:
    """A RayJob in which head and workers add up a number over gloo."""
    script = ROOT / "tests" / "testcluster" / "allreduce.py"
    return rayjob(name, f"{sys.prefix}/bin/python {script} {workers + 1}", member, workers=workers)


def _pod_spec(container: dict[str, Any], member: Member) -> dict[str, Any]:
    template = pod_template(member.pod_server)["spec"]
    (everywhere,) = template.pop("containers")
    security = {"runAsNonRoot": True, "runAsUser": USER_ID, "fsGroup": USER_ID, "seccompProfile": {"type": "RuntimeDefault"}}
    whole = {**everywhere, **container, "image": HOST_IMAGE, "securityContext": _RESTRICTED}
    return {**template, "restartPolicy": "Never", "securityContext": security, "terminationGracePeriodSeconds": 1, "containers": [whole]}
