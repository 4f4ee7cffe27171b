"""Both charts on one cluster with real pods: the hub runs as its chart has it, reaches the member by the account that the other chart made,
and runs a job with these rights and no others."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.test_charts import SYSTEM, helm
from tests.testcluster import Member, Unavailable
from tests.testcluster.images import HOST_IMAGE, ROOT, pod_template
from tests.testcluster.install import BUCKET, JOBS, STORAGE_SECRET, Storage, start_storage
from tests.testcluster.node import SKU_LABEL, SLOT
from tests.testcluster.processes import Processes
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB, MEMBER

from tuneyard.storage import open_store
from tuneyard.tracking import LogReader

OURS = "/apis/tuneyard.dev/v1alpha1"
JOB: dict[str, Any] = {
    "apiVersion": "tuneyard.dev/v1alpha1",
    "kind": "JobSpec",
    "metadata": {"name": "hello", "namespace": "default"},
    "spec": {
        "env": [{"name": "GREETING", "valueFrom": {"secretKeyRef": {"name": "words", "key": "greeting"}}}],
        "tasks": [{"name": "say", "process": {"command": ["bash", "-c", 'test "$GREETING" = bonjour && touch $TUNEYARD_OUTPUT/said']}}],
    },
}
GANG: dict[str, Any] = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
"""The quickstart's corpus, and a few steps of its base model by two ranks in pods of their own."""
GANG["metadata"] = {"name": "gang", "namespace": "default"}
GANG["spec"]["tasks"] = GANG["spec"]["tasks"][:2]
GANG["spec"]["tasks"][1]["train"] |= {"steps": 12, "checkpoint": {"everySteps": 3}}
GANG["spec"]["tasks"][1]["train"]["data"] |= {"limit": 40, "maxLength": 64}
GANG["spec"]["tasks"][1]["resources"] = {"sku": ["cpu"], "workers": 2}


@pytest.fixture(scope="module")
def storage_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Member, Storage]]:
    """One cluster with a real node and KubeRay, and an S3 server that its pods reach."""
    folder = tmp_path_factory.mktemp("home")
    member = Member("home", folder / "cluster")
    try:
        member.start()
        storage = start_storage(folder, member)
    except Unavailable as reason:
        member.close()
        pytest.skip(f"NO CLUSTER, the hub's chart was not run: {reason}")
    yield member, storage
    Processes(folder / "processes").end_all()
    member.close()


def values(member: Member) -> dict[str, Any]:
    """The chart's own, but for what stands in for a registry here: this machine's programs, mounted."""
    template = pod_template(member.pod_server)["spec"]
    (container,) = template["containers"]
    repository, _, tag = HOST_IMAGE.rpartition(":")
    ours = {mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"}  # the chart has its own
    return {
        "output": f"s3://{BUCKET}/jobs",
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "extraEnv": container["env"],
        "extraVolumes": [volume for volume in template["volumes"] if volume["name"] not in ours],
        "extraVolumeMounts": [mount for mount in container["volumeMounts"] if mount["name"] not in ours],
    }


def join(member: Member, storage: Storage) -> None:
    """What the notes of tuneyard-member say, with the API server's address and the storage of this machine."""
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
        "namespace": JOBS,
        "env": [*plain, *keys],
        "podTemplate": pod_template(member.pod_server),
    }
    member.apply(
        secret(SYSTEM, "here", {"kubeconfig": json.dumps(access)}),
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "here"}, "spec": goal},
    )


def secret(namespace: str, name: str, values: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": values}


@pytest.fixture(scope="module")
def home(storage_of: tuple[Member, Storage]) -> Member:
    member, storage = storage_of
    helm(member, "install", HUB, str(CHARTS / HUB), "--create-namespace", values=values(member))
    # hostPath, which pods need here for this machine's Python, is refused below `privileged`.
    helm(member, "install", MEMBER, str(CHARTS / MEMBER), values={"namespace": {"podSecurity": "privileged"}})
    member.apply(secret(JOBS, STORAGE_SECRET, storage.credentials), secret("default", "words", {"greeting": "bonjour"}))
    join(member, storage)
    return member


def logs(member: Member) -> str:
    return member.kubectl("logs", "deployment/tuneyard-hub", "-n", SYSTEM, "--all-pods", "--tail=400")


def test_both_replicas_become_ready_and_one_leads(home: Member) -> None:
    def ready() -> bool:
        status = home.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/tuneyard-hub")["status"]
        return bool(status.get("readyReplicas") == 2)

    wait_for("two ready replicas", ready, limit_s=180, every_s=1, words=lambda: logs(home))
    lease = home.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tuneyard-hub")
    assert lease["spec"]["holderIdentity"].startswith("tuneyard-hub-")


def test_the_cluster_reports_itself(home: Member) -> None:
    def healthy() -> bool:
        return bool(home.api.get(f"{OURS}/clusters/here").get("status", {}).get("healthy"))

    wait_for("a healthy cluster", healthy, limit_s=120, every_s=1, words=lambda: logs(home))


def test_a_job_runs_with_these_rights(home: Member) -> None:
    home.apply(JOB)

    def ended() -> dict[str, Any] | None:
        status = home.api.get(f"{OURS}/namespaces/default/jobspecs/hello").get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    def state() -> str:
        return json.dumps(home.api.get(f"{OURS}/namespaces/default/jobspecs/hello").get("status", {}))[:3000] + logs(home)

    status = wait_for("the end of the job", ended, limit_s=300, every_s=1, words=state)
    assert status["phase"] == "Succeeded", state()
    home.kubectl("delete", "jobspec", "hello", "-n", "default", "--timeout=60s")
    left = [home.api.get(f"/apis/ray.io/v1/namespaces/{JOBS}/rayjobs"), home.api.get(f"{OURS}/namespaces/{JOBS}/attemptreports")]
    assert [each["metadata"]["name"] for kind in left for each in kind["items"]] == []
    secrets = home.api.get(f"/api/v1/namespaces/{JOBS}/secrets")["items"]
    assert {each["metadata"]["name"] for each in secrets} == {STORAGE_SECRET, "tuneyard-hub-token"}
    assert "forbidden" not in logs(home), "a right is missing"


def test_a_gang_outlives_a_killed_worker_pod(home: Member, storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks in two pods; one is killed past a checkpoint; the next attempt goes on from there, and logs of both ranks are kept."""
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    home.apply(GANG)

    def job() -> dict[str, Any]:
        return dict(home.api.get(f"{OURS}/namespaces/default/jobspecs/gang").get("status") or {})

    def words() -> str:
        return json.dumps(job())[:3000] + logs(home)

    def trained() -> dict[str, Any] | None:
        own = [each for each in job().get("attempts") or [] if each["task"] == "base" and each["checkpointStep"] >= 3]
        return own[-1] if own else None

    first = wait_for("a checkpoint", trained, limit_s=900, every_s=0.5, words=words)
    pods = home.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
    workers = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"]
    assert len(workers) == 2
    home.kill_pod(workers[0], JOBS)
    done = wait_for("the end", lambda: (now := job()).get("phase") in ("Succeeded", "Failed") and now, limit_s=900, every_s=1, words=words)
    assert done["phase"] == "Succeeded", words()
    own = [each for each in done["attempts"] if each["task"] == "base"]
    assert [each.get("failure") for each in own] == ["NodeLost", None]
    assert own[1]["resumedFrom"] >= first["checkpointStep"]
    output = open_store(done["output"])
    assert len(json.loads(output.get("base/result.json"))["losses"]) == 12
    assert done["artifacts"], "the model is in S3"
    for attempt in own:
        assert {"rank-0", "rank-1", "driver"} <= set(LogReader(output, "base", attempt["number"]).sources())
    home.kubectl("delete", "jobspec", "gang", "-n", "default", "--timeout=120s")


def test_the_log_names_no_secret(home: Member) -> None:
    assert "bonjour" not in logs(home)
