"""The pod that hears requests for a server that sleeps: the address leads to it until a server answers again.

It is made from the head pod of the attempt that has ended: the same image, account and places. Of its Secrets it gets the key for requests
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.serve import API_KEY, SERVED_PORT
from tuneyard_operators.rendering.names import DOOR
from tuneyard_operators.rendering.service import owned_by

_MEMORY = "192Mi"
_GRACE_S = 5


def door_name(attempt: str) -> str:
    """The name of the pod of an attempt."""
    return f"{attempt}-door"


def door(rayjob: Mapping[str, Any], secret: Mapping[str, Any]) -> dict[str, Any]:
    """The pod. `rayjob`: of the attempt, as it was made; `secret`: the attempt's Secret, which owns the pod, as it owns the Service."""
    head = rayjob["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    first, *others = head["spec"]["containers"]
    container = {
        **{key: value for key, value in first.items() if key not in ("lifecycle", "args")},
        "name": "door",
        "command": ["python", "-P", "-m", "tuneyard.runtime.serve.door"],
        "env": [variable for variable in first["env"] if _is_needed(variable)],
        "ports": [{"containerPort": SERVED_PORT, "name": "http"}],
        "readinessProbe": {"tcpSocket": {"port": SERVED_PORT}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "20m", "memory": _MEMORY}, "limits": {"memory": _MEMORY}},
    }
    own = {key: value for key, value in head["metadata"].get("annotations", {}).items() if not key.startswith("ray.io/")}
    return {
        "metadata": {
            "name": door_name(rayjob["metadata"]["name"]),
            "labels": {**head["metadata"]["labels"], DOOR: "yes"},
            "annotations": own,
            "ownerReferences": [owned_by(secret)],
        },
        "spec": {
            **head["spec"],
            "containers": [container, *others],
            "volumes": [{"name": "scratch", "emptyDir": {}}, *(each for each in head["spec"]["volumes"] if each["name"] != "scratch")],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": _GRACE_S,
        },
    }


def _is_needed(variable: Mapping[str, Any]) -> bool:
    if variable["name"] == API_KEY:
        return True
    return "secretKeyRef" not in variable.get("valueFrom", {}) and variable["name"] != "TUNEYARD_JOB"
