"""Aggregated APIs that a process of this machine serves: a Service without pods, and the address of the process as its one endpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]
LOGS = "tuneyard-hub-logs"
LOGS_API = "v1alpha1.logs.tuneyard.dev"


def served_here(objects: Iterable[Object], address: str, port: int) -> list[Object]:
    """`objects` of a chart with their Services led to a process at `address`, which may be no loopback address."""
    found: list[Object] = []
    for each in objects:
        if each["kind"] != "Service":
            found.append(each)
            continue
        spec = {name: value for name, value in each["spec"].items() if name != "selector"}
        found += [{**each, "spec": spec}, _endpoint(each, address, port)]
    return found


def log_api(namespace: str, address: str, port: int) -> list[Object]:
    """What the hub's chart makes for the API of logs, without rights: for an operator that has them all."""
    named = {"name": LOGS, "namespace": namespace}
    service = {"name": LOGS, "namespace": namespace, "port": 443}
    spec = {"group": "logs.tuneyard.dev", "version": "v1alpha1", "groupPriorityMinimum": 100, "versionPriority": 10, "service": service}
    objects = [
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": {"ports": [{"name": "https", "port": 443}]}},
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": named},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": LOGS_API}, "spec": spec},
    ]
    return served_here(objects, address, port)


def _endpoint(service: Object, address: str, port: int) -> Object:
    metadata = service["metadata"]
    (one,) = service["spec"]["ports"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {"kubernetes.io/service-name": metadata["name"]},
        },
        "addressType": "IPv4",
        "ports": [{"name": one["name"], "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
