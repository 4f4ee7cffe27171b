"""One replica of the hub for all of these tests; readers have a kubeconfig and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.logs_api.replica import KEYS, Object, Say, Served, cluster, make_job, secret
from tests.clusters.hubs import Operator
from tests.servers.installed import free_port, make_s3
from tests.testcluster import Hub
from tests.testcluster.aggregated import LOGS_API, served_here
from tests.testcluster.install import SYSTEM
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import HUB, render

from tuneyard.cli import main
from tuneyard.tracking.task_logs import Chunk

APIS = (LOGS_API, "v1alpha1.history.tuneyard.dev")
_NOT_OF_A_PROCESS = ("Deployment", "PodDisruptionBudget", "CustomResourceDefinition")


@pytest.fixture(scope="package")
def served(hub_server: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The hub's cluster, the chart's objects, and a replica that never leads: it is given no lease."""
    folder = tmp_path_factory.mktemp("logs")
    hub = hub_server
    s3 = make_s3(folder)
    port, health = free_port(), free_port()
    if hub.address.startswith("127."):
        pytest.skip("NO BRIDGE WITHOUT ROOT: an API server reaches no Service on a loopback address")
    operator = Operator(
        folder,
        folder / "operator.yaml",
        options=("--logs-port", str(port), "--metrics-port", str(health)),
        # Keys of the hub's own, to a server of its own: no author's job may be read with these.
        environment={
            "TUNEYARD_HISTORY_URL": f"sqlite:///{folder}/history.db",
            "AWS_ACCESS_KEY_ID": "the-hubs",
            "AWS_SECRET_ACCESS_KEY": "the-hubs",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        },
    )
    try:
        hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        chart = [
            each for each in render(HUB, {"postgresql": {"external": {"secretName": "history"}}}) if each["kind"] not in _NOT_OF_A_PROCESS
        ]
        chart = [each for each in chart if each["metadata"]["name"] != "tuneyard-hub-metrics"]
        leases = [each for each in chart if each["kind"] in ("Role", "RoleBinding") and each["metadata"]["name"] == "tuneyard-hub"]
        hub.apply(*served_here((each for each in chart if each not in leases), hub.address, port))
        token = hub.token("tuneyard-hub", SYSTEM, hours=24)
        config = yaml.safe_load(hub.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        operator.kubeconfig.write_text(yaml.safe_dump(config))
        hub.apply(binding("ada", "view"), binding("eve", "tuneyard-only-jobspecs"))
        only = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tuneyard-only-jobspecs"}}
        hub.apply(only | {"rules": [{"apiGroups": ["tuneyard.dev"], "resources": ["jobspecs"], "verbs": ["get"]}]})
        (folder / "ada").write_text(hub.kubeconfig_for("ada"))
        with s3.started():
            found = Served(hub, operator, s3, port, f"http://127.0.0.1:{health}", folder / "ada", folder / "history.db")
            operator.start()
            wait_for("the API of logs", found.available, limit_s=240, words=lambda: operator.log[-3000:])
            hub.apply(secret("s3", {name: s3.environment[name] for name in KEYS}), cluster("gcp-h100", s3.environment["AWS_ENDPOINT_URL"]))
            yield found
    finally:
        operator.processes.end_all()
        for name in APIS:
            hub.api.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")


def binding(user: str, role: str, namespace: str = "default") -> Object:
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}", "namespace": namespace},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    }


@pytest.fixture
def say(served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Say:
    """A command line of the reader, on a machine without keys of storage."""
    for name in (*KEYS, "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(served.reader))

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def two_ranks(served: Served, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A job whose two ranks and driver have printed; its name."""
    name = f"j-{abs(hash(request.node.name))}"
    store = served.store(make_job(served, name), monkeypatch)
    for source in ("rank-0", "rank-1", "driver"):
        store.create(Chunk("train", 2, source, 1).path, f"hello from {source}\n".encode())
        store.create(Chunk("train", 2, source, 2).path, f"more from {source}\n".encode())
    return name
