"""One cluster with real pods that is hub and member at once, both as their charts have them, and what tests ask it for.

It has two nodes: ranks run on the one, heads and data workers on the other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_charts import SYSTEM, helm
from tests.clusters.versions import TREE, Version
from tests.testcluster import Member, Unavailable
from tests.testcluster.images import HOST_IMAGE
from tests.testcluster.install import BUCKET, JOBS, STORAGE_SECRET, Storage, start_storage
from tests.testcluster.node import SKU_LABEL, SLOT
from tests.testcluster.processes import Processes
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB, MEMBER

OURS = "/apis/tuneyard.dev/v1alpha1"
POOL = "tuneyard.test/pool"
"""Label of the node without slots."""


@contextmanager
def started(folder: Path) -> Iterator[tuple[Member, Storage]]:
    """One cluster with two real nodes and KubeRay, and an S3 server that its pods reach. Raises Unavailable where it cannot run."""
    member = Member("home", folder / "cluster", second_node=f"{POOL}=cpu")
    try:
        member.start()
        yield member, start_storage(folder, member)
    finally:
        Processes(folder / "processes").end_all()
        member.close()


@pytest.fixture(scope="session")
def storage_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Member, Storage]]:
    """The cluster of a run, and its storage."""
    with ExitStack() as ends:
        try:
            found = ends.enter_context(started(tmp_path_factory.mktemp("home")))
        except Unavailable as reason:
            pytest.skip(f"NO CLUSTER, the hub's chart was not run: {reason}")
        yield found


def values(member: Member, version: Version = TREE) -> dict[str, Any]:
    """The chart's own, but for what stands in for a registry here: this machine's programs, mounted. The hub runs a version's packages."""
    template = version.pod_template(member.pod_server)["spec"]
    (container,) = template["containers"]
    repository, _, tag = HOST_IMAGE.rpartition(":")
    ours = {mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"}  # the chart has its own
    return {
        "output": f"s3://{BUCKET}/jobs",
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "jobs": {"image": HOST_IMAGE},
        "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "extraEnv": container["env"],
        "extraVolumes": [volume for volume in template["volumes"] if volume["name"] not in ours],
        "extraVolumeMounts": [mount for mount in container["volumeMounts"] if mount["name"] not in ours],
    }


def join(member: Member, storage: Storage, version: Version = TREE) -> None:
    """What the notes of tuneyard-member say, with the API server's address and the storage of this machine. `version`: whose packages pods
    of attempts run that start from now on."""
    token = wait_for("the token", lambda: member.api.get(f"/api/v1/namespaces/{JOBS}/secrets/tuneyard-hub-token").get("data"))
    access = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": member.pod_server, "certificate-authority-data": token["ca.crt"]}}],
        "users": [{"name": "hub", "user": {"token": base64.b64decode(token["token"]).decode()}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "hub"}}],
    }
    plain = [{"name": name, "value": value} for name, value in storage.environment.items() if name not in storage.credentials]
    keys = [{"name": name, "valueFrom": {"secretKeyRef": {"name": STORAGE_SECRET, "key": name}}} for name in storage.credentials]
    goal = {
        "endpoint": {"kubeconfigSecret": {"name": "here", "key": "kubeconfig"}},
        "skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": member.slots, "gpuResource": SLOT, "nodeSelector": {SKU_LABEL: "cpu"}}],
        "network": {"interface": "eth0"},
        "head": {"nodeSelector": {POOL: "cpu"}},
        "namespace": JOBS,
        "env": [*plain, *keys],
        "podTemplate": version.pod_template(member.pod_server),
    }
    member.apply(
        secret(SYSTEM, "here", {"kubeconfig": json.dumps(access)}),
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "here"}, "spec": goal},
    )


def secret(namespace: str, name: str, values: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": values}


@pytest.fixture(scope="session")
def home(storage_of: tuple[Member, Storage]) -> Member:
    """The cluster with both charts on it, known to itself."""
    install(*storage_of)
    return storage_of[0]


def install(member: Member, storage: Storage) -> None:
    helm(member, "install", HUB, str(CHARTS / HUB), "--create-namespace", values=values(member))
    # hostPath, which pods need here for this machine's Python, is refused below `privileged`.
    helm(member, "install", MEMBER, str(CHARTS / MEMBER), values={"namespace": {"podSecurity": "privileged"}})
    member.apply(secret(JOBS, STORAGE_SECRET, storage.credentials), secret("default", "words", {"greeting": "bonjour"}))
    join(member, storage)


def upgrade(member: Member, version: Version, *, crds: bool = True) -> None:
    """Replace the hub by another version's, with its chart and (`crds`) its CRDs; all replicas are the version's on return."""
    chosen = {**values(member, version), "crds": {"install": crds}}
    helm(member, "upgrade", HUB, str(version.folder / "charts" / HUB), values=chosen)
    member.kubectl("rollout", "status", "deployment/tuneyard-hub", "-n", SYSTEM, "--timeout=400s")


def logs(member: Member) -> str:
    return member.kubectl("logs", "deployment/tuneyard-hub", "-n", SYSTEM, "--all-pods", "--tail=400")


def may_patch_ray_clusters(member: Member, account: str) -> bool:
    """Whether an account of jobs may change a Ray cluster, as the attempt of another team's job."""
    asked = {"group": "ray.io", "resource": "rayclusters", "verb": "patch", "namespace": JOBS}
    review = {"spec": {"user": f"system:serviceaccount:{JOBS}:{account}", "resourceAttributes": asked}}
    return bool(member.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])
