"""The console of a hub as its readers reach it, over a real API server, and the accounts that read it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from starlette.testclient import TestClient
from tests.servers.installed import free_port, running
from tests.testcluster import Hub
from tests.unit.charts.rendering import HUB, VARIANTS, of_kind, render

from tuneyard.cluster import HubAccess
from tuneyard.console.hosted import ProxyReaders, ProxyTrust, Sessions, TokenReaders, hosted_app
from tuneyard.console.hosted.metrics import ConsoleMetrics

NAME = "console.example.com"
ADDRESS = f"https://{NAME}"
KEY = b"k" * 32
SECRET = "s" * 32
OWN = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
RBAC = "rbac.authorization.k8s.io"
SYSTEM = "tuneyard-system"
READER = "console-tests"
"""ClusterRole of the readers of tests."""
RULES = [
    {"apiGroups": ["tuneyard.dev"], "resources": ["jobspecs", "schedules"], "verbs": ["create", "get", "list", "patch", "watch"]},
]


def apply_account(hub: Hub, *, variant: str = "hub-with-console-behind-a-proxy") -> str:
    """Create the console's account with the rights that the chart gives it. Returns its kubeconfig as text."""
    mine = [each for each in render(HUB, VARIANTS[variant][1]) if each["metadata"]["name"] == "tuneyard-hub-console"]
    hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    hub.apply(*of_kind(mine, "ServiceAccount", "ClusterRole", "ClusterRoleBinding"))
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": hub.token("tuneyard-hub-console", SYSTEM)}
    return str(yaml.safe_dump(config))


def make_account(hub: Hub, name: str, *, role: str = "", namespaces: Sequence[str] = ()) -> str:
    """A service account of the namespace default with a ClusterRole in some namespaces; its token."""
    hub.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
    bind(hub, {"kind": "ServiceAccount", "name": name, "namespace": "default"}, role, namespaces)
    return hub.token(name)


def bind(hub: Hub, subject: dict[str, str], role: str, namespaces: Sequence[str]) -> None:
    for namespace in namespaces:
        meta = {"name": f"{subject['name']}-{role}", "namespace": namespace}
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        hub.apply({"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [subject]})


def client_of(app: Any) -> TestClient:
    return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False, follow_redirects=False)


def by_token(kubeconfig: Any, metrics: ConsoleMetrics | None = None, hours: float = 12) -> TestClient:
    readers = TokenReaders(HubAccess(kubeconfig=kubeconfig), Sessions(KEY, hours))
    return client_of(hosted_app(readers, key=KEY, hosts=[NAME], metrics=metrics))


def by_proxy(kubeconfig: Any, **trust: Any) -> TestClient:
    wanted = {"user_header": "X-User", "groups_header": "X-Groups", "groups": frozenset(["ml-team"]), "secret": SECRET, **trust}
    return client_of(hosted_app(ProxyReaders(HubAccess(kubeconfig=kubeconfig), ProxyTrust(**wanted)), key=KEY, hosts=[NAME]))


def form_token(page: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert found, page
    return found[1]


def log_in(client: TestClient, token: str, back: str = "/") -> Any:
    form = {"token": form_token(client.get("/login").text), "bearer": token, "back": back}
    return client.post("/login", data=form, headers=OWN)


@contextmanager
def hosted_console(folder: Path, kubeconfig: Path, *words: str) -> Iterator[tuple[str, str]]:
    """The process of the chart's Deployment, by token; the addresses of its pages and of its metrics."""
    port, metrics = free_port(), free_port()
    command = [sys.executable, "-m", "tuneyard.console", "--kubeconfig", str(kubeconfig)]
    command += ["--port", str(port), "--metrics-port", str(metrics), *words]
    environment = {"TUNEYARD_CONSOLE_KEY": KEY.decode(), "PYTHONUNBUFFERED": "1"}
    with running(command, port=port, log=folder / "hosted.log", env=environment):
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}"
