"""KubeRay on a cluster: its CRDs, and its operator as a process of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from tests.testcluster.binaries import binary, kuberay_crds
from tests.testcluster.network import Network

_WITHOUT_OBJECTS = ("raycronjobs", "rayservices")
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crds(*plurals: str) -> list[dict[str, Any]]:
    """KubeRay's CRDs, or those of some kinds. An API server takes seconds for each of their schemas: kinds of which no test makes an object
    have none here."""
    found = {file.stem.partition("_")[2]: file for file in sorted(kuberay_crds().glob("*.yaml"))}
    made = {plural: yaml.load(found[plural].read_text(), yaml.CSafeLoader) for plural in plurals or found}
    for plural, crd in made.items():
        for version in crd["spec"]["versions"] if plural in _WITHOUT_OBJECTS else ():
            version["schema"] = {"openAPIV3Schema": _ANYTHING}
    return list(made.values())


def operator(kubeconfig: Path, network: Network) -> tuple[list[str], dict[str, str]]:
    """Command and environment."""
    command = [
        binary("kuberay-operator"),
        f"--kubeconfig={kubeconfig}",
        "--enable-leader-election=false",
        # It reaches head pods through the API server: it is no pod itself, and no kube-proxy runs.
        "--use-kubernetes-proxy",
        f"--metrics-addr={network.loopback}:8080",
        f"--health-probe-bind-address={network.loopback}:8082",
        "--qps=200",
        "--burst=400",
        "--reconcile-concurrency=4",
    ]
    # Workers of Tuneyard wait for their head by themselves: an init container that starts Python again and again would slow all else here.
    return command, {
        "WATCH_NAMESPACE": "",
        "ENABLE_INIT_CONTAINER_INJECTION": "false",
        "ENABLE_PROBES_INJECTION": os.environ.get("ENABLE_PROBES_INJECTION", "true"),
    }
