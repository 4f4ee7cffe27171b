"""Tuneyard on test clusters: kinds, an S3 server, members known to the hub, and the operator, as the charts would have it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from tests.servers.installed import free_port, versitygw
from tests.testcluster.aggregated import log_api
from tests.testcluster.clusters import Clusters
from tests.testcluster.hub import Hub
from tests.testcluster.images import HOST_IMAGE
from tests.testcluster.member import Member
from tests.testcluster.node import SKU_LABEL, SLOT
from tests.testcluster.processes import Processes
from tests.testcluster.waiting import wait_for

from tuneyard.api import schema

SYSTEM = "tuneyard-system"
"""Namespace of the hub's own things."""
JOBS = "tuneyard"
"""Namespace of members in which jobs run."""
STORAGE_SECRET = "tuneyard-storage"
BUCKET = "tuneyard"
OPERATOR = "operator"


@dataclass(frozen=True)
class Storage:
    """An S3 server on this machine, at an address that pods reach."""

    endpoint: str
    access_key: str
    secret_key: str

    @property
    def credentials(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", **self.credentials}


def write_crds(folder: Path) -> list[Path]:
    """The CRDs of all kinds, as files."""
    schema.main(str(folder))
    return sorted(folder.glob("*.yaml"))


def start_storage(folder: Path, hub: Hub) -> Storage:
    """Start an S3 server with a bucket, under new credentials."""
    port = free_port()
    storage = Storage(f"http://{hub.address}:{port}", secrets.token_hex(8), secrets.token_hex(16))
    root = folder / "s3"
    (root / BUCKET).mkdir(parents=True)
    command = [versitygw(), "--access", storage.access_key, "--secret", storage.secret_key, "--region", "us-east-1", "--quiet"]
    Processes(folder / "processes").start("versitygw", [*command, "--port", f"{hub.address}:{port}", "posix", str(root)])
    return storage


def prepare_hub(hub: Hub, crds: list[Path], storage: Storage) -> None:
    hub.apply(*crds, _namespace(SYSTEM), _secret(STORAGE_SECRET, "default", storage.credentials))


def prepare_member(member: Member, crds: list[Path], storage: Storage) -> None:
    """What a hub expects on a member: the kind of reports, a namespace, and the account that jobs run under."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tuneyard-job", "namespace": JOBS}}
    autoscaler = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tuneyard-autoscaler", "namespace": JOBS}}
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "tuneyard-job-token",
            "namespace": JOBS,
            "annotations": {"kubernetes.io/service-account.name": "tuneyard-job"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    rules = [
        {"apiGroups": ["tuneyard.dev"], "resources": ["attemptreports"], "verbs": ["create", "get", "patch"]},
        {"apiGroups": ["tuneyard.dev"], "resources": ["attemptreports/status"], "verbs": ["patch"]},
    ]
    rbac, named = "rbac.authorization.k8s.io", {"name": "tuneyard-job", "namespace": JOBS}
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": named, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": named,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tuneyard-job"},
        "subjects": [{"kind": "ServiceAccount", **named}],
    }
    # The restricted standard refuses hostPath, which pods need here for this machine's Python and nowhere else.
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    reports = [file for file in crds if file.stem == "attemptreports"]
    accounts = (account, autoscaler, token, role, binding)
    member.apply(*reports, _namespace(JOBS, level), *accounts, _secret(STORAGE_SECRET, JOBS, storage.credentials))


def register(hub: Hub, member: Member, storage: Storage) -> None:
    """Make a member known to the hub."""
    secret = f"{member.name}-kubeconfig"
    plain = [{"name": name, "value": value} for name, value in storage.environment.items() if name not in storage.credentials]
    keys = [{"name": name, "valueFrom": {"secretKeyRef": {"name": STORAGE_SECRET, "key": name}}} for name in storage.credentials]
    goal = {
        "endpoint": {"server": member.server, "kubeconfigSecret": {"name": secret, "key": "kubeconfig"}},
        "skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": member.slots, "gpuResource": SLOT, "nodeSelector": {SKU_LABEL: "cpu"}}],
        "network": {"interface": "eth0"},
        "storage": [f"s3://{BUCKET}"],
        "namespace": JOBS,
        "env": [*plain, *keys],
        "podTemplate": member.pod_template(),
    }
    cluster = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": member.name}, "spec": goal}
    hub.apply(_secret(secret, SYSTEM, {"kubeconfig": member.kubeconfig.read_text()}), cluster)


def start_operator(folder: Path, hub: Hub, storage: Storage, options: Sequence[str] = ()) -> None:
    """Start the hub's operator as a process of this machine; it is ready on return. `options`: further words of its command line."""
    command = [sys.executable, "-m", "tuneyard_operators", "hub", "--kubeconfig", str(hub.kubeconfig)]
    port, logs_port = free_port(), free_port()
    command += ["--output", f"s3://{BUCKET}/jobs", "--image", HOST_IMAGE, "--metrics-port", str(port), *options]
    if not hub.address.startswith("127."):  # no Service may have a loopback address
        hub.apply(*log_api(SYSTEM, hub.address, logs_port))
        command += ["--logs-port", str(logs_port)]
    processes = Processes(folder / "processes")
    processes.start(OPERATOR, command, storage.environment)

    def ready() -> bool:
        if processes.pid(OPERATOR) is None:
            raise RuntimeError(f"the operator ended; its log ends:\n{processes.tail(OPERATOR)}")
        try:
            return urllib3.request("GET", f"http://127.0.0.1:{port}/readyz", retries=False, timeout=5).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    wait_for("the operator", ready, limit_s=120, words=lambda: processes.tail(OPERATOR))


def install(folder: Path, clusters: Clusters) -> Storage:
    """Everything but the operator."""
    crds = write_crds(folder / "crds")
    storage = start_storage(folder, clusters.hub)
    prepare_hub(clusters.hub, crds, storage)

    def join(member: Member) -> None:
        prepare_member(member, crds, storage)
        register(clusters.hub, member, storage)

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(join, clusters.members):
            pass
    return storage


def _namespace(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def _secret(name: str, namespace: str, values: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": values}
