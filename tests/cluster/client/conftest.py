"""A hub without an operator, of which each test says what the operator would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.builders.hub_jobs import as_yaml, make_manifest, make_running
from tests.clusters.hosted_consoles import READER, RULES, apply_account
from tests.clusters.hub_client import create, report, storage_of_a_cluster
from tests.clusters.hubs import remove_all
from tests.servers.installed import S3, s3_server
from tests.testcluster import Hub
from tests.testcluster.binaries import binary
from tests.testcluster.kubeapi import Refused

from tuneyard.cli import main
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk

__all__ = ["s3_server"]


@pytest.fixture
def hub(hub_server: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub without jobs and clusters, named by KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", str(hub_server.kubeconfig))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield hub_server
    remove_all(hub_server, "jobspecs", "clusters")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(as_yaml(make_manifest()))
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line; its exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def kubectl(hub: Hub) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The real one, with its cache apart from that of other clusters."""

    def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        cache = ("--cache-dir", str(hub.folder / "kubectl")) if words[0] in ("get", "create") else ()
        return subprocess.run([binary("kubectl"), *words, *cache], input=stdin, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def logged(hub: Hub, s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A running job whose two ranks have printed, in an S3 server that only its Secret opens; the URI of its output."""
    output = f"s3://{s3_server.bucket}/{time.monotonic_ns()}"
    with monkeypatch.context() as environment:
        for name, value in s3_server.environment.items():
            environment.setenv(name, value)
        store = open_store(output)
        for source in ("rank-0", "rank-1", "driver"):
            store.create(Chunk("train", 2, source, 1).path, f"hello from {source}\n".encode())
            store.create(Chunk("train", 2, source, 2).path, f"more from {source}\n".encode())
    keys = {name: s3_server.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    hub.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3", "namespace": "default"}, "stringData": keys})
    env: list[dict[str, Any]] = [{"name": name, "valueFrom": {"secretKeyRef": {"name": "s3", "key": name}}} for name in keys]
    env += [{"name": name, "value": s3_server.environment[name]} for name in ("AWS_ENDPOINT_URL", "AWS_REGION")]
    create(hub, make_manifest(env=env))
    report(hub, make_running() | {"output": output})
    hub.apply(storage_of_a_cluster(s3_server.environment))
    yield output
    for name in ("s3", "tuneyard-storage"):
        with suppress(Refused):  # a test has removed it
            hub.api.delete(f"/api/v1/namespaces/default/secrets/{name}")


@pytest.fixture(scope="module")
def kubeconfig(hub_server: Hub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the account of a hub's console, with the rights of the chart. The role of its readers is made with it."""
    path = tmp_path_factory.mktemp("console") / "kubeconfig"
    path.write_text(apply_account(hub_server))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": READER}}
    hub_server.apply({**role, "rules": RULES})
    return path
