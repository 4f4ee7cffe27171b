"""The Service of a serve task: one name in its cluster for the server of each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.serve import SERVED_PORT
from tuneyard_operators.rendering.names import ATTEMPT, UID, service_name


def service(labels: Mapping[str, str], secret: Mapping[str, Any]) -> dict[str, Any]:
    """The Service in front of an attempt's worker pod. `labels`: of the attempt's pods. `secret`: the attempt's Secret, which owns it:
    Kubernetes removes it with the Secret, and so before the RayJob, which the hub removes last."""
    owner = {"apiVersion": "v1", "kind": "Secret", "name": secret["metadata"]["name"], "uid": secret["metadata"]["uid"]}
    return {
        "metadata": {"name": service_name(labels), "labels": dict(labels), "ownerReferences": [owner]},
        "spec": {
            "selector": {**{key: labels[key] for key in (UID, ATTEMPT)}, "ray.io/group": "gang"},
            "ports": [{"name": "http", "port": SERVED_PORT, "targetPort": SERVED_PORT}],
        },
    }


def url(labels: Mapping[str, str], namespace: str) -> str:
    """The address of a served model in its cluster. `namespace`: that of attempts."""
    return f"http://{service_name(labels)}.{namespace}.svc:{SERVED_PORT}/v1"
