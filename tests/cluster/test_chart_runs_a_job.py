"""Both charts on one cluster with real pods: the hub runs as its chart has it, reaches the member by the account that the other chart made,
and runs a job with these rights and no others."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.home import OURS, logs, may_patch_ray_clusters
from tests.cluster.test_charts import SYSTEM
from tests.testcluster import Member
from tests.testcluster.images import ROOT
from tests.testcluster.install import BUCKET, JOBS, STORAGE_SECRET, Storage
from tests.testcluster.waiting import wait_for

import tuneyard
from tuneyard.storage import open_store
from tuneyard.tracking import LogReader

LOGS = "/apis/logs.tuneyard.dev/v1alpha1"
SAY = (
    'test "$GREETING" = bonjour && test "$1" = "$AS_WRITTEN" && test "$1" != "$GREETING"'
    " && python tools/say.py text.txt $TUNEYARD_OUTPUT/said && python -m tuneyard.data.bookings $TUNEYARD_OUTPUT"
)
"""Kubernetes would put the secret into argv and into the job's own description, where `$(GREETING)` stands."""
QUICKSTART: dict[str, Any] = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
STEPS = 6
BASE: dict[str, Any] = copy.deepcopy(QUICKSTART["spec"]["tasks"][1])
"""The quickstart's base task on two ranks in pods of their own, with rows from a data worker in a third."""
BASE["train"] |= {"steps": STEPS, "checkpoint": {"everySteps": 3}, "model": {"from": "say", "path": "model", "init": "scratch"}}
BASE["train"]["data"] = {"from": "say", "path": "text.jsonl", "format": "text", "streaming": True, "maxLength": 64}
BASE["train"]["data"]["service"] = {"minWorkers": 1, "maxWorkers": 1, "cpus": 0.1, "memoryGb": 1.5}
BASE["resources"] = {"sku": ["cpu"], "workers": 2}
JOB: dict[str, Any] = {
    "apiVersion": "tuneyard.dev/v1alpha1",
    "kind": "JobSpec",
    "metadata": {"name": "hello", "namespace": "default"},
    "spec": {
        "env": [
            {"name": "GREETING", "valueFrom": {"secretKeyRef": {"name": "words", "key": "greeting"}}},
            {"name": "AS_WRITTEN", "value": "$(GREETING)"},
        ],
        "setup": ['test "$AS_WRITTEN" != "$GREETING"'],
        "tasks": [{"name": "say", "process": {"command": ["bash", "-c", SAY, "--", "$(GREETING)"]}}, BASE],
    },
}
GANG: dict[str, Any] = copy.deepcopy(QUICKSTART)
"""The quickstart's first two tasks with a larger model, whose steps last long enough to be killed in: two ranks in pods of their own."""
GANG["metadata"] = {"name": "gang", "namespace": "default"}
GANG["spec"]["tasks"] = GANG["spec"]["tasks"][:2]
GANG["spec"]["tasks"][0]["process"]["command"][2] = "tuneyard.data.stdlib"
GANG["spec"]["tasks"][1]["train"] |= {"steps": 60, "optimizer": {"learningRate": 1e-3}, "checkpoint": {"everySteps": 3}}
GANG["spec"]["tasks"][1]["train"]["data"] |= {"limit": 40, "maxLength": 64}
GANG["spec"]["tasks"][1]["resources"] = {"sku": ["cpu"], "workers": 2}


def test_both_replicas_become_ready_and_one_leads(home: Member) -> None:
    def ready() -> bool:
        status = home.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/tuneyard-hub")["status"]
        return bool(status.get("readyReplicas") == 2)

    wait_for("two ready replicas", ready, limit_s=600, every_s=1, words=lambda: logs(home))
    lease = home.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tuneyard-hub")
    assert lease["spec"]["holderIdentity"].startswith("tuneyard-hub-")


def test_the_cluster_reports_itself(home: Member) -> None:
    def healthy() -> bool:
        return bool(home.api.get(f"{OURS}/clusters/here").get("status", {}).get("healthy"))

    wait_for("a healthy cluster", healthy, limit_s=600, every_s=1, words=lambda: logs(home))


def as_viewer(member: Member, folder: Path, *words: str) -> str:
    """What kubectl prints to somebody who may view the namespace default and nothing else; the hub has the member's keys to storage."""
    user = {"kind": "User", "name": "vera", "apiGroup": "rbac.authorization.k8s.io"}
    view = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    metadata = {"name": "vera", "namespace": "default"}
    member.apply(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata, "roleRef": view, "subjects": [user]}
    )
    (folder / "vera").write_text(member.kubeconfig_for("vera"))

    def answered() -> str:
        try:
            return member.kubectl("--kubeconfig", str(folder / "vera"), *words)
        except RuntimeError as error:
            said.append(str(error))
            return ""

    said: list[str] = []
    return str(wait_for("an answer to a viewer", answered, every_s=1, words=lambda: f"{said[-1]}\n{logs(member)}"))


def nodes_of_pods(member: Member) -> dict[str, list[str]] | None:
    """Nodes of the pods of a task's ranks and of its data workers, once all are placed."""
    found: dict[str, list[str]] = {"gang": [], "data": []}
    for pod in member.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]:
        if (group := pod["metadata"]["labels"].get("ray.io/group")) in found:
            found[group].append(pod["spec"].get("nodeName", ""))
    return found if len(found["gang"]) == 2 and found["data"] and all(map(all, found.values())) else None


def test_code_of_a_job_may_not_change_ray_clusters(home: Member) -> None:
    """It could change the pods of all other jobs. KubeRay grants that to the account of its autoscaler: see test_data_pods.py."""
    assert not may_patch_ray_clusters(home, "tuneyard-job")


def test_a_job_runs_with_these_rights_and_the_files_beside_it(
    home: Member, storage_of: tuple[Member, Storage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "words.py").write_text("def shout(text): return text.upper()\n")
    (tmp_path / "tools" / "say.py").write_text(
        "import pathlib, sys; from words import shout; pathlib.Path(sys.argv[2]).write_text(shout(open(sys.argv[1]).read()))\n"
    )
    (tmp_path / "text.txt").write_text("hello from the laptop")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    output = f"s3://{BUCKET}/hello"
    tuneyard.submit(tmp_path / "job.yaml", out=output, kubeconfig=home.kubeconfig)

    def ended() -> dict[str, Any] | None:
        status = home.api.get(f"{OURS}/namespaces/default/jobspecs/hello").get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    def state() -> str:
        return json.dumps(home.api.get(f"{OURS}/namespaces/default/jobspecs/hello").get("status", {}))[:3000] + logs(home)

    assert wait_for("pods of ranks and of data workers", lambda: nodes_of_pods(home) or ended(), limit_s=900, every_s=0.5, words=state) == {
        "gang": [home.node_name] * 2,
        "data": [f"{home.node_name}-2"],
    }
    status = wait_for("the end of the job", ended, limit_s=900, every_s=1, words=state)
    assert status["phase"] == "Succeeded", state()
    written = open_store(output)
    assert written.get("say/files/said") == b"HELLO FROM THE LAPTOP"
    assert len(json.loads(written.get("base/result.json"))["losses"]) == STEPS
    assert status["artifacts"], "the model is in S3"
    assert "start cold" not in LogReader(written, "base", 1).read("driver").text, (
        "a token of Ray's own is no other setting to a fork server"
    )
    answer = json.loads(as_viewer(home, tmp_path, "get", "--raw", f"{LOGS}/namespaces/default/jobspecs/hello/log"))
    assert {"rank-0", "rank-1", "driver"} <= set(answer["sources"])
    assert "\n" in "".join(part["text"] for part in answer["parts"] if part["source"] == "driver")
    home.kubectl("delete", "jobspec", "hello", "-n", "default", "--timeout=240s")
    left = [home.api.get(f"/apis/ray.io/v1/namespaces/{JOBS}/rayjobs"), home.api.get(f"{OURS}/namespaces/{JOBS}/attemptreports")]
    assert [each["metadata"]["name"] for kind in left for each in kind["items"]] == []

    def secrets() -> set[str]:
        return {each["metadata"]["name"] for each in home.api.get(f"/api/v1/namespaces/{JOBS}/secrets")["items"]}

    wait_for(
        "the attempt's secrets to go, its Ray token too", lambda: secrets() == {STORAGE_SECRET, "tuneyard-hub-token", "tuneyard-job-token"}
    )
    assert "forbidden" not in logs(home), "a right is missing"


@pytest.mark.long
def test_a_gang_outlives_a_killed_worker_pod(home: Member, storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks in two pods; one is killed past a checkpoint. KubeRay replaces it, and the same attempt goes on from there.

    In `make test`: `test_ranks_start_again_in_place_when_one_is_killed_and_when_its_pod_is_replaced` on machines of this process's Ray, and
    `test_a_job_runs_with_these_rights_and_the_files_beside_it` for two ranks in pods.
    """
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
    assert [each.get("failure") for each in own] == [None], words()
    output = open_store(done["output"])
    result = json.loads(output.get("base/result.json"))
    assert result["resumed_from"] >= first["checkpointStep"]
    assert len(result["losses"]) == 60
    assert done["artifacts"], "the model is in S3"
    for attempt in own:
        lines = LogReader(output, "base", attempt["number"])
        assert {"rank-0", "rank-1", "driver"} <= set(lines.sources())
        assert "start cold" not in lines.read("driver").text, "a token of Ray's own is no other setting to a fork server"
    home.kubectl("delete", "jobspec", "gang", "-n", "default", "--timeout=240s")


def test_the_log_names_no_secret(home: Member) -> None:
    assert "bonjour" not in logs(home)
