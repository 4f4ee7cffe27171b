"""What tests of the client say to a hub: what its operator would do, commands that go on meanwhile, users with few rights."""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.builders.hub_jobs import make_manifest
from tests.testcluster import Hub

JOBS = "/apis/tuneyard.dev/v1alpha1/namespaces/{}/jobspecs"
RULE = {"apiGroups": ["tuneyard.dev"], "resources": ["jobspecs"]}
Say = Callable[..., tuple[int, str, str]]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def report(hub: Hub, status: dict[str, Any], name: str = "support-bot", namespace: str = "default") -> None:
    """What the operator would do."""
    hub.api.patch(f"{JOBS.format(namespace)}/{name}/status", {"status": status})


def create(hub: Hub, manifest: dict[str, Any] | None = None, namespace: str = "default") -> None:
    hub.api.create(JOBS.format(namespace), manifest or make_manifest())


def held(hub: Hub, name: str = "support-bot", namespace: str = "default") -> dict[str, Any]:
    found = hub.api.get(f"{JOBS.format(namespace)}/{name}")
    assert isinstance(found, dict)
    return found


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on while the test does something."""
    command = [str(Path(sys.executable).parent / "tuneyard"), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream: IO[str] | None, start: str) -> str:
    """The first line that starts so."""
    assert stream is not None
    seen = []
    for line in stream:
        if line.startswith(start):
            return line
        seen.append(line)
    raise AssertionError(f"no line starts with {start!r}: {seen}")


def storage_of_a_cluster(variables: Mapping[str, str]) -> dict[str, Any]:
    """The Cluster that the job runs on: its administrators say where storage is."""
    env = [{"name": name, "value": variables[name]} for name in ("AWS_ENDPOINT_URL", "AWS_REGION")]
    spec = {"skus": [{"name": "h100-80gb", "nodes": 2, "gpusPerNode": 8}], "env": env}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "gcp-h100"}, "spec": spec}


def as_user(hub: Hub, tmp_path: Path, *, valid: datetime.timedelta = datetime.timedelta(days=1), **rules: list[str]) -> Path:
    """The kubeconfig of a user whom RBAC grants these verbs on jobspecs of the namespace default, or none."""
    user = f"ada-{time.monotonic_ns()}"
    (tmp_path / user).write_text(hub.kubeconfig_for(user, valid=valid))
    if rules:
        meta = {"name": user, "namespace": "default"}
        group = "rbac.authorization.k8s.io"
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [RULE | rules]}
        subject = {"kind": "User", "name": user, "apiGroup": group}
        reference = {"kind": "Role", "name": user, "apiGroup": group}
        hub.apply(role, {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, "subjects": [subject], "roleRef": reference})
    return tmp_path / user


def make_hostile_env(server: str, file: Path) -> list[dict[str, Any]]:
    """What makes S3 clients send a file of the reader's to a server of the author's, in three ways."""
    values = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ENDPOINT_URL_STS": server,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(file),
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server}/token",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(file),
        "AWS_METADATA_ENDPOINT": server,
        "AWS_PROFILE": "default",
        "AWS_REGION": "x.example.com/",
    }
    return [{"name": name, "value": value} for name, value in values.items()]
