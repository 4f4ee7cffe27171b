"""The NetworkPolicy of an attempt: only its own pods reach each other.

The policy of the member's chart admits KubeRay and other programs; Kubernetes allows what any policy allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.serve import SERVED_PORT
from tuneyard_operators.rendering.names import ATTEMPT, UID

ISOLATED = "tuneyard.dev/isolated"
"""Label of pods with such a policy. The chart's policies select it, and so leave out pods that older hubs started without a policy."""


def network_policy(name: str, labels: Mapping[str, str], *, serves: bool = False) -> dict[str, Any]:
    """The NetworkPolicy of an attempt. `labels`: the labels of its pods. `serves`: all others reach the port of its server."""
    own = {"matchLabels": {key: labels[key] for key in (UID, ATTEMPT)}}
    rules: list[dict[str, Any]] = [{"from": [{"podSelector": own}]}]
    if serves:
        rules.append({"ports": [{"protocol": "TCP", "port": SERVED_PORT}]})
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules}}
