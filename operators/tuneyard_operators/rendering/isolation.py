"""The NetworkPolicy of an attempt: only its own pods reach each other.

The policy of the member's chart lets in KubeRay and other programs; policies add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard_operators.rendering.names import ATTEMPT, UID

ISOLATED = "tuneyard.dev/isolated"
"""Label of pods with such a policy: the chart's policies do not select pods that older hubs started without one."""


def network_policy(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """`labels`: those of the attempt's pods."""
    own = {"matchLabels": {key: labels[key] for key in (UID, ATTEMPT)}}
    rules = [{"from": [{"podSelector": own}]}]
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules}}
