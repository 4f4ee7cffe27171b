"""A hub in pods whose console runs in a pod too, and what its pages show: runs on record, a search, a Schedule, a job that waits."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from tests.cluster.home import OURS, logs, secret, values
from tests.cluster.test_charts import SYSTEM, helm
from tests.clusters.hosted_consoles import NAME, make_account
from tests.servers.chromium import Tab
from tests.servers.installed import PostgresServer
from tests.testcluster import Member
from tests.testcluster.images import ROOT
from tests.testcluster.install import BUCKET
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB

JOBSPECS = f"{OURS}/namespaces/default/jobspecs"
CONSOLE = "tuneyard-hub-console"
RBAC = "rbac.authorization.k8s.io"
STEPS = 80
LIMIT_S = 1200
QUICKSTART: dict[str, Any] = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())


def training(name: str, *, rate: float = 3e-3, scored: bool = False) -> dict[str, Any]:
    """The quickstart's corpus and base model, and with `scored` its score over a few held-out mails."""
    job = copy.deepcopy(QUICKSTART)
    job["metadata"] = {"name": name, "namespace": "default"}
    corpus, base, _, score, _ = job["spec"]["tasks"]
    base["train"] |= {"steps": STEPS, "checkpoint": {"everySteps": 40}}
    base["train"]["optimizer"]["learningRate"] = rate
    base["resources"] = {"sku": ["cpu"], "workers": 1}
    score["score"]["data"]["limit"] = 24
    score["resources"] = {"sku": ["cpu"], "instances": 1}
    job["spec"]["tasks"] = [corpus, base, score] if scored else [corpus, base]
    return job


def searching(name: str) -> dict[str, Any]:
    """A search for settings of the base model, in short runs."""
    job = training(name)
    corpus, base = job["spec"]["tasks"]
    base["train"] |= {"strategy": "auto", "steps": 20, "checkpoint": {"everySteps": 20}, "batch": {"global": 8}}
    space = {"batch.micro": [2, 4, 8]}
    tune = {"task": "base", "budget": {"trials": 5, "rounds": 1, "pairs": 1}, "stepsPerTrial": 20, "space": space}
    search = {"name": "search", "tune": tune, "resources": {"sku": ["cpu"], "workers": 1}}
    job["spec"]["tasks"] = [corpus, base, search]
    return job


def waiting(name: str) -> dict[str, Any]:
    """A job for all slots of the cluster, which waits while another runs."""
    job = training(name)
    (base,) = job["spec"]["tasks"][1:]
    base["resources"] = {"sku": ["cpu"], "workers": 8}
    base["train"]["batch"] = {"global": 32, "micro": 4}
    base["train"]["model"] = {"name": "Qwen/Qwen2.5-0.5B"}
    base["train"]["data"] = {"source": f"s3://{BUCKET}/texts.jsonl", "format": "text"}
    job["spec"]["tasks"] = [base]
    return job


def schedule(name: str) -> dict[str, Any]:
    template = {"spec": {"tasks": [{"name": "say", "process": {"command": ["bash", "-c", "echo good night > $TUNEYARD_OUTPUT/said"]}}]}}
    spec = {"cron": "0 2 * * *", "timeZone": "Europe/Berlin", "template": template, "runNow": "2026-11-26T12:00:00Z"}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


TEAM = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": "default"}, "spec": {"quota": {"cpu": 8}}}


@contextmanager
def with_console(member: Member) -> Iterator[None]:
    """The hub of `member` with a console in a pod, and with history in a PostgreSQL of this machine."""
    server = PostgresServer("-console", address=member.address)
    try:
        server.start()
        member.apply(secret(SYSTEM, "history", {"url": server.url}))
        more = {
            "console": {"enabled": True, "replicas": 1, "hosts": [NAME], "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}},
            "postgresql": {"external": {"secretName": "history", "key": "url"}},
        }
        helm(member, "upgrade", HUB, str(CHARTS / HUB), values={**values(member), **more})
        for name in ("tuneyard-hub", CONSOLE):
            member.kubectl("rollout", "status", f"deployment/{name}", "-n", SYSTEM, "--timeout=500s")
        yield
    finally:
        server.remove()


def reader_of(member: Member) -> str:
    """The token of an account that may edit the namespace default, and see clusters and teams."""
    token = make_account(member, "ada", role="edit", namespaces=["default"])
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "tuneyard-read-clusters"}
    subject = {"kind": "ServiceAccount", "name": "ada", "namespace": "default"}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ada"}}
    member.apply({**binding, "roleRef": role, "subjects": [subject]})
    return token


def pod_address(member: Member) -> str:
    """The address of the console's pod, which this machine reaches as a node does."""
    pods = member.api.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
    (own,) = [pod for pod in pods if pod["metadata"]["name"].startswith(CONSOLE)]
    return str(own["status"]["podIP"])


def log_in(tab: Tab, address: str, token: str) -> None:
    tab.look(f"{address}/jobs", pictured=False)
    tab.ask(f"document.querySelector('#bearer').value = {json.dumps(token)}")
    tab.ask("document.querySelector('.login button').click()")
    tab.wait_for("!document.querySelector('#bearer') && document.querySelector('h1') !== null", limit_s=60)


def status_of(member: Member, name: str) -> dict[str, Any]:
    return dict(member.api.get(f"{JOBSPECS}/{name}").get("status") or {})


def told(member: Member, name: str) -> str:
    """The state of a job and the end of the hub's log, for a test that waits in vain."""
    return f"{json.dumps(status_of(member, name))[:3000]}\n{logs(member)}"


def wait_for_end(member: Member, name: str) -> dict[str, Any]:
    """The status of a job at its end."""

    def ended() -> dict[str, Any] | None:
        status = status_of(member, name)
        return status if status.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    found = wait_for(f"the end of {name}", ended, limit_s=LIMIT_S, every_s=1, words=lambda: told(member, name))
    assert found["phase"] == "Succeeded", json.dumps(found)[:3000]
    return dict(found)
