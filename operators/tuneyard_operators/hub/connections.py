"""Connects the hub to a member, with the kubeconfig in the Secret that the Cluster names."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tuneyard.api import Cluster
from tuneyard_operators.kube import SECRET, Connection, Missing, Unreachable, from_kubeconfig_text

Connect = Callable[..., Awaitable[Connection]]


async def connect(cluster: Cluster, hub: Connection, own: Connect, namespace: str, **options: Any) -> Connection:
    """Connect to a member with the kubeconfig in its Cluster's Secret. A Cluster without a Secret is the hub's own cluster: `own` connects
    to it. The connection may write whenever the connection to the hub may.

    Raises ApiError if the Secret does not exist or cannot be used.
    """
    reference = cluster.spec.endpoint.kubeconfig_secret
    if reference is None:
        if cluster.spec.endpoint.server is not None:
            raise Unreachable(0, "the Cluster names a server and no kubeconfigSecret; name neither for the hub's own cluster")
        return await own(**options)
    try:
        secret = await hub.get(SECRET, namespace, reference.name)
    except Missing as error:
        raise Unreachable(404, f"the Secret {namespace}/{reference.name} with its kubeconfig does not exist") from error
    data: Mapping[str, str] = secret.get("data") or {}
    if reference.key not in data:
        raise Unreachable(0, f"the Secret {namespace}/{reference.name} has no key {reference.key}")
    text = base64.b64decode(data[reference.key]).decode(errors="replace")
    return await from_kubeconfig_text(text, may_write=hub.may_write, **options)
