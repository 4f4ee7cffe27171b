"""The Service of a serve task: one name in its cluster for the server of each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.serve import SERVED_PORT
from tuneyard_operators.rendering.names import ATTEMPT, DOOR, UID, service_name


def service(labels: Mapping[str, str], secret: Mapping[str, Any], *, to_door: bool = False) -> dict[str, Any]:
    """The Service in front of an attempt's worker pod, or of its door. `labels`: of the attempt's pods. `secret`: the attempt's Secret,
    which owns it: Kubernetes removes it with the Secret, and so before the RayJob, which the hub removes last."""
    return {
        "metadata": {"name": service_name(labels), "labels": dict(labels), "ownerReferences": [owned_by(secret)]},
        "spec": {
            "selector": {**{key: labels[key] for key in (UID, ATTEMPT)}, **({DOOR: "yes"} if to_door else {"ray.io/group": "gang"})},
            "ports": [{"name": "http", "port": SERVED_PORT, "targetPort": SERVED_PORT}],
        },
    }


def owned_by(secret: Mapping[str, Any]) -> dict[str, Any]:
    """The reference to an attempt's Secret in what Kubernetes is to remove with it."""
    return {"apiVersion": "v1", "kind": "Secret", "name": secret["metadata"]["name"], "uid": secret["metadata"]["uid"]}


def url(labels: Mapping[str, str], namespace: str) -> str:
    """The address of a served model in its cluster. `namespace`: that of attempts."""
    return f"http://{service_name(labels)}.{namespace}.svc:{SERVED_PORT}/v1"
