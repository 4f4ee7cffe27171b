"""The NetworkPolicy of an attempt: only its own pods reach each other.

The policy of the member's chart admits KubeRay and other programs; Kubernetes allows what any policy allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard_operators.rendering.names import ATTEMPT, UID

ISOLATED = "tuneyard.dev/isolated"
"""Label of pods with such a policy. The chart's policies select it, and so leave out pods that older hubs started without a policy."""


def network_policy(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The NetworkPolicy of an attempt. `labels`: the labels of its pods."""
    own = {"matchLabels": {key: labels[key] for key in (UID, ATTEMPT)}}
    rules = [{"from": [{"podSelector": own}]}]
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules}}
