"""A replica of the hub that serves the API of logs, and what a test asks of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.builders.hub_jobs import make_attempt, make_manifest, make_running
from tests.clusters.hub_client import create, report
from tests.clusters.hubs import Operator
from tests.servers.installed import S3
from tests.testcluster import Hub
from tests.testcluster.aggregated import LOGS_API

from tuneyard.storage import Store, open_store

Object = dict[str, Any]
Say = Callable[..., tuple[int, str, str]]
LOG = "/apis/logs.tuneyard.dev/v1alpha1/namespaces/{}/jobspecs/{}/log"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class Served:
    """`reader`: kubeconfig of someone with the role `view` in the namespace default; `history`: the hub's database."""

    hub: Hub
    operator: Operator
    s3: S3
    port: int
    health: str
    reader: Path
    history: Path

    def healthy(self) -> bool:
        return bool(urllib3.request("GET", f"{self.health}/healthz", retries=False, timeout=5).status == 200)

    def available(self) -> bool:
        conditions = (self.hub.api.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{LOGS_API}").get("status") or {}).get(
            "conditions"
        ) or []
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    def store(self, output: str, monkeypatch: pytest.MonkeyPatch) -> Store:
        with monkeypatch.context() as environment:
            for name, value in self.s3.environment.items():
                environment.setenv(name, value)
            return open_store(output)


def cluster(name: str, server: str) -> Object:
    env = [{"name": "AWS_ENDPOINT_URL", "value": server}, {"name": "AWS_REGION", "value": "us-east-1"}]
    spec = {"skus": [{"name": "h100-80gb", "nodes": 2, "gpusPerNode": 8}], "env": env}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}


def secret(name: str, values: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "stringData": values}


def placed_on(name: str) -> list[Object]:
    return [make_attempt(1) | {"placement": make_attempt()["placement"] | {"cluster": name}}]


def make_job(served: Served, name: str, output: str | None = None, *, env: list[Object] | None = None, **status: Any) -> str:
    """A running job of the name, whose keys are in the Secret `s3`; the URI of its output."""
    output = output or f"s3://{served.s3.bucket}/{name}-{time.monotonic_ns()}"
    keys = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}} for key in KEYS]
    create(served.hub, make_manifest(name, env=keys if env is None else env))
    report(served.hub, make_running() | {"output": output} | status, name)
    return output


def raw(served: Served, name: str, **parameters: object) -> Any:
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return served.hub.api.get(f"{LOG.format('default', name)}?{query}")
