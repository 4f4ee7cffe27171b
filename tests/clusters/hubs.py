"""A hub operator as a process of this machine, over clusters of the harness: started, killed, started again."""

from __future__ import annotations

import base64
import contextlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests.testcluster import Hub, Member, kuberay
from tests.testcluster.clusters import Clusters
from tests.testcluster.images import ROOT
from tests.testcluster.install import JOBS, SYSTEM, write_crds
from tests.testcluster.kubeapi import Refused
from tests.testcluster.processes import Processes

API = "/apis/tuneyard.dev/v1alpha1"
RAYJOBS = f"/apis/ray.io/v1/namespaces/{JOBS}/rayjobs"


@dataclass(frozen=True)
class Operator:
    """One replica. `options`: further words of its command line."""

    folder: Path
    kubeconfig: Path
    name: str = "operator"
    options: Sequence[str] = ()
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    module: str = "tuneyard_operators"

    @property
    def processes(self) -> Processes:
        return Processes(self.folder / "processes")

    def start(self) -> None:
        command = [self.python, "-m", self.module, "hub", "--kubeconfig", str(self.kubeconfig), "--metrics-port", "0"]
        command += ["--output", "s3://tuneyard/jobs", "--image", "registry/tuneyard:1", "--log-format", "text", *self.options]
        self.processes.start(self.name, command, {"PYTHONPATH": str(ROOT), **self.environment})

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        self.processes.stop(self.name)

    def stop(self) -> None:
        self.processes.stop(self.name, signal.SIGTERM)

    @property
    def memory_mb(self) -> float:
        pid = self.processes.pid(self.name)
        return psutil.Process(pid).memory_info().rss / 1e6 if pid else 0.0

    @property
    def cpu_s(self) -> float:
        pid = self.processes.pid(self.name)
        times = psutil.Process(pid).cpu_times() if pid else None
        return times.user + times.system if times else 0.0

    @property
    def log(self) -> str:
        return self.processes.log(self.name).read_text(errors="replace")


def prepared(
    clusters: Clusters,
    *,
    sku: str = "h100-80gb",
    gpus_per_node: int = 8,
    nodes: int = 1000,
    selector: Mapping[str, str] | None = None,
    tokens: bool = False,
) -> None:
    """Hub and members without pods, as the charts would have them: kinds, namespaces, a Cluster per member.

    `selector`: labels of the machines that the hub may use; by default all. `tokens`: the hub reaches its members `by_token`.
    """
    hub = clusters.hub
    crds = write_crds(hub.folder.parent / "crds")
    hub.apply(*crds, _namespace(SYSTEM))
    for member in clusters.members:
        member.apply(
            *[file for file in crds if file.stem == "attemptreports"],
            *kuberay.crds("rayjobs"),
            _namespace(JOBS),
        )
        credentials = by_token(member) if tokens else None
        machines = {"name": sku, "nodes": nodes, "gpusPerNode": gpus_per_node, **({"nodeSelector": dict(selector)} if selector else {})}
        register(hub, member, machines, kubeconfig=credentials)
        until(lambda member=member: _serves(member, RAYJOBS, f"{API}/namespaces/{JOBS}/attemptreports"), f"{member.name} serves its kinds")
    until(lambda: _serves(hub, f"{API}/jobspecs", f"{API}/teams", f"{API}/clusters"), "the hub serves its kinds")


def _serves(cluster: Hub, *paths: str) -> bool:
    """Whether lists of these are answered: a kind that is new is refused for a moment, as its storage begins."""
    try:
        return all("items" in cluster.api.get(path) for path in paths)
    except Refused:
        return False


def register(hub: Hub, member: Member, sku: Mapping[str, Any], *, kubeconfig: str | None = None, **spec: Any) -> None:
    """Make a member known to the hub by its Cluster and Secret."""
    text = kubeconfig if kubeconfig is not None else member.kubeconfig.read_text()
    name = f"{member.name}-kubeconfig"
    data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SYSTEM}, "data": data}
    goal = {"endpoint": {"kubeconfigSecret": {"name": name, "key": "kubeconfig"}}, "skus": [dict(sku)], "namespace": JOBS, **spec}
    hub.apply(secret, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": member.name}, "spec": goal})


def by_token(cluster: Hub) -> str:
    """A kubeconfig that signs with a service account's token, as hubs do in a cluster: an API server verifies a certificate anew for every
    request, and remembers a token."""
    name = "by-token"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    cluster.apply(account, binding)
    made = yaml.safe_load(cluster.kubeconfig.read_text())
    made["users"][0]["user"] = {"token": cluster.token(name, hours=24)}
    return yaml.safe_dump(made)


def jobspec(name: str, *, workers: int = 8, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    train = {
        "model": {"name": "Qwen/Qwen2.5-1.5B"},  # it fits on one GPU of any kind that the tests have
        "data": {"source": "s3://b/chats.jsonl", "format": "chat"},
        "batch": {"global": 64},
        "steps": 10,
    }
    tasks = [{"name": "train", "train": train, "resources": {"workers": workers}}]
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": {"tasks": tasks, **spec}}


def submit_all(hub: Hub, specs: Sequence[Mapping[str, Any]], *, at_once: int = 16) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(lambda spec: hub.api.create(f"{API}/namespaces/{spec['metadata']['namespace']}/jobspecs", spec), specs):
            pass


def job(hub: Hub, name: str, namespace: str = "default") -> dict[str, Any]:
    return dict(hub.api.get(f"{API}/namespaces/{namespace}/jobspecs/{name}"))


def phases(hub: Hub) -> dict[str, str]:
    items = hub.api.get(f"{API}/jobspecs")["items"]
    return {item["metadata"]["name"]: (item.get("status") or {}).get("phase", "") for item in items}


def rayjobs(member: Member) -> list[dict[str, Any]]:
    return list(member.api.get(RAYJOBS)["items"])


def remove_all(hub: Hub, *plurals: str) -> None:
    """Delete all objects of these kinds, of all namespaces; they are gone on return."""
    for plural in plurals:
        for item in hub.api.get(f"{API}/{plural}")["items"]:
            metadata = item["metadata"]
            folder = f"{API}/namespaces/{metadata['namespace']}" if "namespace" in metadata else API
            with contextlib.suppress(Refused):  # gone meanwhile
                hub.api.delete(f"{folder}/{plural}/{metadata['name']}")
    for plural in plurals:
        until(lambda plural=plural: not hub.api.get(f"{API}/{plural}?limit=1")["items"], f"all {plural} are gone")


def speak(member: Member, attempt: str, **state: Any) -> None:
    """Report as the attempt would."""
    path = f"{API}/namespaces/{JOBS}/attemptreports"
    if member.api.find(f"{path}/{attempt}") is None:
        member.api.create(path, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "AttemptReport", "metadata": {"name": attempt}})
    member.api.patch(f"{path}/{attempt}/status", {"status": state})


def until(condition: Any, what: str, limit_s: float = 240) -> Any:
    """The first true value of `condition()`. Raises AssertionError with `what` after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
