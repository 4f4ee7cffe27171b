"""The hub's client against a real API server: every command, every way in which the hub may not answer as hoped.

No operator runs here: what it would write into statuses, the tests write.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from tests.hub_jobs import as_yaml, make_attempt, make_failed_attempt, make_manifest, make_progress, make_running
from tests.servers import S3, s3_server
from tests.testcluster import Hub, Unavailable
from tests.testcluster.binaries import binary
from tests.testcluster.waiting import wait_for

import tuneyard
from tuneyard.api import JobFailed, TuneyardError, load_jobspec
from tuneyard.api.schema import main as write_crds
from tuneyard.cli import main
from tuneyard.cluster import open_hub
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk

__all__ = ["s3_server"]

JOBS = "/apis/tuneyard.dev/v1alpha1/namespaces/{}/jobspecs"
RULE = {"apiGroups": ["tuneyard.dev"], "resources": ["jobspecs"]}


@pytest.fixture(scope="module")
def hub_server(cluster_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub without an operator, with the CRDs and the namespace `maps`."""
    crds = tmp_path_factory.mktemp("crds")
    write_crds(str(crds))
    server = Hub("client", cluster_folder / "client")
    try:
        server.start()
        server.apply(*sorted(crds.glob("*.yaml")))
        server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "maps"}})
        yield server
    except Unavailable as reason:
        pytest.skip(f"NO CLUSTERS ON THIS MACHINE: {reason}")
    finally:
        server.close()


@pytest.fixture
def hub(hub_server: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub without jobs and clusters, named by KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", str(hub_server.kubeconfig))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield hub_server
    hub_server.kubectl("delete", "jobspecs", "--all", "-A", "--wait=false")
    hub_server.kubectl("delete", "clusters.tuneyard.dev", "--all")


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


Say = Callable[..., tuple[int, str, str]]


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


# --- submit


def test_a_job_is_submitted_and_the_same_file_again_changes_nothing(hub: Hub, file: Path, say: Say) -> None:
    code, out, err = say("submit", file)
    assert (code, out) == (0, "default/support-bot\n")
    assert f"submitted to the hub at {hub.server}" in err
    before = held(hub)
    code, out, err = say("submit", file)
    assert (code, out) == (0, "default/support-bot\n")
    assert "there already and the same, Pending" in err
    assert held(hub) == before


def test_what_kubectl_and_tuneyard_make_of_a_file_is_the_same(hub: Hub, file: Path, say: Say) -> None:
    say("submit", file)
    submitted = held(hub)["spec"]
    hub.kubectl("delete", "tyj", "support-bot")
    hub.kubectl("apply", "-f", str(file))
    assert held(hub)["spec"] == submitted
    code, _, err = say("submit", file)
    assert (code, "there already and the same" in err) == (0, True)


def test_a_dry_run_changes_nothing_and_says_what_is_to_be_expected(hub: Hub, file: Path, say: Say) -> None:
    code, out, err = say("submit", file, "--dry-run")
    assert (code, out) == (0, "default/support-bot\n")
    assert "would take it (dry run: nothing was changed)" in err
    assert "train: would wait behind 0: there is no cluster" in err
    assert hub.api.get(JOBS.format("default"))["items"] == []
    code, out, _ = say("submit", file, "--dry-run", "-o", "json")
    facts = json.loads(out)
    (expected,) = facts.pop("estimate")
    assert (expected["task"], expected["cluster"], expected["expected_start"]) == ("train", None, None)
    assert facts | {"uid": ""} == {
        "name": "support-bot",
        "namespace": "default",
        "uid": "",
        "outcome": "created",
        "dry_run": True,
        "phase": "Pending",
    }


def test_a_changed_file_is_taken_until_the_job_starts(hub: Hub, file: Path, say: Say) -> None:
    say("submit", file)
    file.write_text(as_yaml(make_manifest(steps=100)))
    code, _, err = say("submit", file, "--dry-run")
    assert (code, "would change the job, which has not started" in err) == (0, True)
    assert held(hub)["spec"]["tasks"][0]["train"]["steps"] == 120
    assert say("submit", file)[0] == 0
    assert held(hub)["spec"]["tasks"][0]["train"]["steps"] == 100


def test_a_changed_file_of_a_running_job_is_refused_with_words(hub: Hub, file: Path, say: Say) -> None:
    say("submit", file)
    report(hub, make_running())
    file.write_text(as_yaml(make_manifest(steps=100)))
    code, out, err = say("submit", file)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: JobSpec default/support-bot is Running already, and the file differs from it: spec.tasks[0].train.steps: 120 -> 100",
        "next: submit it under another name, or end the running one first: "
        "tuneyard cancel support-bot -n default --wait && kubectl delete jobspec support-bot -n default",
    ]


def test_a_job_that_has_failed_is_not_started_again_by_accident(hub: Hub, file: Path, say: Say) -> None:
    say("submit", file)
    report(hub, {"phase": "Failed"})
    code, _, err = say("submit", file)
    assert code == 2
    assert "has ended already (Failed)" in err
    assert "kubectl delete jobspec support-bot -n default" in err


def test_a_job_that_the_hub_could_not_start_takes_a_corrected_file(hub: Hub, file: Path, say: Say) -> None:
    say("submit", file)
    report(hub, {"phase": "Failed", "message": "spec.storage.output: say where", "observedGeneration": 1})
    assert "has ended already (Failed: spec.storage.output: say where)" in say("submit", file)[2]
    file.write_text(as_yaml(make_manifest(storage={"output": "s3://models/support-bot"})))
    assert say("submit", file)[0] == 0
    assert (
        say("wait", "support-bot", "--timeout", "1s")[2]
        .splitlines()[-2]
        .endswith("has not ended within 1 s: Failed, spec.storage.output: say where")
    )
    report(hub, {"phase": "Succeeded", "observedGeneration": 2})
    assert say("wait", "support-bot")[0] == 0


def test_what_is_wrong_here_never_reaches_the_hub(hub: Hub, tmp_path: Path, say: Say) -> None:
    wrong = make_manifest()
    wrong["spec"]["tasks"][0]["train"]["strategy"] = {"zero": 7}
    (tmp_path / "job.yaml").write_text(as_yaml(wrong))
    code, _, err = say("submit", tmp_path / "job.yaml")
    assert code == 2
    assert re.search(r"job\.yaml:\d+:\d+: spec\.tasks\[0\]\.train\.strategy\.zero: ", err)
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_what_only_the_hub_refuses_has_the_line_of_the_file(hub: Hub, file: Path, say: Say) -> None:
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-haste"}}
    rule = {"apiGroups": ["tuneyard.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobspecs"]}
    validation = {"expression": "object.spec.priority != 'urgent'", "message": "team maps may not use priority urgent"}
    binding = policy | {"kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "no-haste", "validationActions": ["Deny"]}}
    hub.apply(policy | {"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}}, binding)
    file.write_text(as_yaml(make_manifest(priority="urgent")))
    try:
        wait_for("the policy", lambda: "team maps may not" in say("submit", file, "--dry-run")[2])
        code, _, err = say("submit", file)
    finally:
        hub.kubectl("delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", "no-haste")
    assert code == 2
    assert "team maps may not use priority urgent" in err


def test_a_field_that_an_older_hub_does_not_know_has_its_line(hub: Hub, file: Path, say: Say) -> None:
    name = "jobspecs.tuneyard.dev"
    crd = json.loads(hub.kubectl("get", "crd", name, "-o", "json"))
    older = {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": {"name": name}, "spec": deepcopy(crd["spec"])}
    properties = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del properties["deadline"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    file.write_text(as_yaml(make_manifest(deadline="2d")))
    try:
        hub.api.call("PUT", path, older | {"metadata": crd["metadata"]})
        wait_for("the older CRD", lambda: say("submit", file, "--dry-run")[0] == 2)
        code, _, err = say("submit", file)
    finally:
        crd["metadata"]["resourceVersion"] = hub.api.get(path)["metadata"]["resourceVersion"]
        hub.api.call("PUT", path, crd)
        wait_for("the CRD of now", lambda: say("submit", file, "--dry-run")[0] == 0)
    assert code == 2
    assert re.search(r"job\.yaml:\d+:\d+: spec\.deadline: the hub does not know this field\n", err)
    assert "upgrade the chart" in err


@pytest.mark.usefixtures("hub")
def test_namespaces_come_from_the_file_the_flag_or_the_context(file: Path, say: Say) -> None:
    assert say("submit", file, "-n", "maps")[1] == "maps/support-bot\n"
    file.write_text(as_yaml(make_manifest("other", "maps")))
    assert say("submit", file)[1] == "maps/other\n"
    code, _, err = say("submit", file, "-n", "default")
    assert (code, "is for namespace 'maps', and -n says 'default'" in err) == (2, True)
    file.write_text(as_yaml(make_manifest()))
    code, _, err = say("submit", file, "-n", "nowhere")
    assert (code, "has no namespace 'nowhere'" in err) == (2, True)


@pytest.mark.usefixtures("hub")
def test_from_python(file: Path) -> None:
    made = tuneyard.submit(file)
    assert (made.outcome, made.job.label) == ("created", "default/support-bot")
    assert tuneyard.submit(str(file)).outcome == "unchanged"
    assert tuneyard.submit(load_jobspec(file)).outcome == "unchanged"


# --- status, clusters


def test_a_table_of_jobs(hub: Hub, say: Say) -> None:
    assert say("status")[1] == "no jobs in namespace default: start one with `tuneyard submit FILE`; -A looks in all namespaces\n"
    create(hub)
    create(hub, make_manifest("other"), "maps")
    report(hub, make_running())
    _, out, _ = say("status")
    head, line = out.splitlines()
    assert head.split() == ["name", "phase", "cluster", "sku", "gpus", "progress", "loss", "MFU", "ETA", "age", "message"]
    assert re.fullmatch(
        r"support-bot  Running  gcp-h100  h100-80gb    16  40/120 33%  1.832  41%  1:12:00  +\d+s  +train runs on gcp-h100", line
    )
    assert {line.split()[0] for line in say("status", "-A")[1].splitlines()[1:]} == {"default/support-bot", "maps/other"}
    told = json.loads(say("status", "-A", "-o", "json")[1])
    assert {(job["name"], job["phase"], job["step"]) for job in told} == {("support-bot", "Running", 40), ("other", "Pending", 0)}


def test_the_page_of_a_job(hub: Hub, say: Say) -> None:
    create(hub)
    report(hub, make_running())
    code, out, _ = say("status", "support-bot")
    assert code == 0
    assert "attempt 1 of train: NodeLost on node n7: rank 3 stopped answering\n  next: nothing: it goes on elsewhere\n" in out
    assert "    | step 20 loss 2.04\n" in out
    told = json.loads(say("status", "support-bot", "-o", "json")[1])
    assert told["attempts"][1]["placement"]["nodes"] == {"n1": 8, "n2": 8}


def test_names_that_are_nearly_right(hub: Hub, say: Say) -> None:
    create(hub)
    create(hub, make_manifest("elsewhere"), "maps")
    code, _, err = say("status", "supprot-bot")
    assert code == 2
    assert err == f"error: the hub at {hub.server} has no JobSpec default/supprot-bot\nnext: did you mean support-bot?\n"
    assert "next: there is one in another namespace: -n maps\n" in say("status", "elsewhere")[2]
    assert "tuneyard status -n default lists the 1 there" in say("cancel", "zzz")[2]


def test_watching_a_job_ends_with_it(hub: Hub) -> None:
    create(hub)
    with started("status", "support-bot", "-w", "-o", "json") as watching:
        assert json.loads(read_until(watching.stdout, "{"))["phase"] == "Pending"
        report(hub, {"phase": "Succeeded", "message": "all tasks succeeded"})
        assert json.loads(watching.communicate()[0])["phase"] == "Succeeded"
    assert watching.returncode == 0


def test_clusters(hub: Hub, say: Say) -> None:
    assert "no clusters yet" in say("clusters")[1]
    skus = [{"name": "h100-80gb", "nodes": 2, "gpusPerNode": 8, "pricePerGpuHour": 2.5}, {"name": "cpu", "nodes": 1, "gpusPerNode": 4}]
    cluster = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "gcp-h100"}, "spec": {"skus": skus}}
    hub.api.create("/apis/tuneyard.dev/v1alpha1/clusters", cluster)
    lines = say("clusters")[1].splitlines()
    assert lines[1].split() == [
        "gcp-h100",
        "no",
        "h100-80gb",
        "-",
        "16",
        "2.5",
        "never",
        "no",
        "not",
        "looked",
        "at",
        "yet",
        "by",
        "the",
        "hub's",
        "operator",
    ]
    nodes = [
        {"name": "a", "sku": "h100-80gb", "gpus": 8, "free": 3},
        {"name": "b", "sku": "h100-80gb", "gpus": 8, "free": 8, "ready": False},
    ]
    heartbeat = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"healthy": True, "heartbeat": heartbeat, "nodes": nodes, "message": "b is not ready"}
    hub.api.patch("/apis/tuneyard.dev/v1alpha1/clusters/gcp-h100/status", {"status": status})
    hub.api.patch("/apis/tuneyard.dev/v1alpha1/clusters/gcp-h100", {"spec": {"cordoned": True}})
    told = json.loads(say("clusters", "-o", "json")[1])[0]
    assert (told["healthy"], told["cordoned"], told["skus"][0]["free"], told["skus"][0]["total"]) == (True, True, 3, 16)
    assert 0 <= told["heartbeat_age_s"] < 60


# --- wait, cancel


@pytest.mark.parametrize(
    ("status", "code", "out", "err"),
    [
        ({"phase": "Succeeded"}, 0, "default/support-bot: Succeeded\n", ""),
        ({"phase": "Cancelled"}, 1, "", "error: default/support-bot was cancelled\n"),
        (
            {
                "phase": "Failed",
                "message": "train: no such file",
                "attempts": [make_failed_attempt() | {"nextStep": "correct data.source"}],
            },
            1,
            "",
            "error: default/support-bot failed: train: no such file\nnext: correct data.source\n",
        ),
    ],
)
def test_waiting_ends_as_the_job_does(hub: Hub, say: Say, status: dict[str, Any], code: int, out: str, err: str) -> None:
    create(hub)
    later = threading.Timer(1.0, report, (hub, status))
    later.start()
    found = say("wait", "support-bot")
    later.join()
    assert found[:2] == (code, out)
    assert err in found[2]


def test_waiting_has_an_end_of_its_own(hub: Hub, say: Say) -> None:
    create(hub)
    report(hub, {"phase": "Queued", "message": "dca-a100: 3 of 4 nodes are free"})
    code, _, err = say("wait", "support-bot", "--timeout", "1s")
    assert code == 1
    assert "default/support-bot has not ended within 1 s: Queued, dca-a100: 3 of 4 nodes are free" in err
    assert say("wait", "support-bot", "--timeout", "soon")[0] == 2


def test_submit_and_wait(hub: Hub, file: Path, say: Say) -> None:
    def operator() -> None:
        wait_for("the job", lambda: hub.api.find(f"{JOBS.format('default')}/support-bot"))
        report(hub, make_running())
        report(hub, {"phase": "Succeeded", "message": "all tasks succeeded"})

    working = threading.Thread(target=operator)
    working.start()
    code, out, err = say("submit", file, "--wait")
    working.join()
    assert (code, out) == (0, "default/support-bot\n")
    assert "default/support-bot  Succeeded  all tasks succeeded" in err


def test_a_job_that_is_deleted_is_not_waited_for(hub: Hub) -> None:
    create(hub)
    following = open_hub().follow("support-bot")
    next(following)
    hub.kubectl("delete", "tyj", "support-bot")
    with pytest.raises(JobFailed, match="JobSpec default/support-bot was deleted while it was being followed"):
        list(following)


def test_waiting_outlives_a_restart_of_the_api_server(hub: Hub) -> None:
    create(hub)
    report(hub, make_running())
    with started("wait", "support-bot") as waiting:
        read_until(waiting.stderr, "default/support-bot  Running")
        hub.stop("kube-apiserver")
        try:
            # Refused, or lost in the middle of a request.
            assert read_until(waiting.stderr, f"the hub at {hub.server} does not answer: ").endswith("; waiting for it\n")
        finally:
            hub.start("kube-apiserver")
        report(hub, {"phase": "Succeeded", "message": "all tasks succeeded"})
        read_until(waiting.stderr, "the hub answers again")
        assert waiting.communicate()[0] == "default/support-bot: Succeeded\n"
    assert waiting.returncode == 0


def test_cancelling(hub: Hub, say: Say) -> None:
    create(hub)
    report(hub, make_running())
    code, out, _ = say("cancel", "support-bot")
    assert code == 0
    assert out.startswith("default/support-bot will end: attempt 2 of train will commit what is done, then give the machines back")
    assert held(hub)["spec"]["cancelled"] is True
    assert say("cancel", "support-bot")[1].startswith("default/support-bot is being cancelled already")
    assert say("status")[1].splitlines()[1].split()[1] == "Cancelling"
    later = threading.Timer(1.0, report, (hub, {"phase": "Cancelled"}))
    later.start()
    code, out, _ = say("cancel", "support-bot", "--wait")
    later.join()
    assert code == 0
    assert out.endswith(": Cancelled\n")
    assert say("cancel", "support-bot")[1] == "default/support-bot has ended already: Cancelled\n"


def test_cancelling_what_has_succeeded_leaves_it_so(hub: Hub, say: Say) -> None:
    create(hub)
    report(hub, {"phase": "Succeeded"})
    assert say("cancel", "support-bot")[:2] == (0, "default/support-bot has ended already: Succeeded\n")
    assert held(hub)["spec"]["cancelled"] is False


# --- logs


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
    yield output
    hub.kubectl("delete", "secrets", "s3", "tuneyard-storage", "--ignore-not-found")


@pytest.mark.usefixtures("logged")
def test_logs_of_all_ranks_with_the_jobs_own_credentials(say: Say) -> None:
    code, out, _ = say("logs", "support-bot")
    assert code == 0
    assert out.splitlines() == [
        f"[train {who}] {what} from {who.replace(' ', '-')}" for who in ("driver", "rank 0", "rank 1") for what in ("hello", "more")
    ]
    assert say("logs", "support-bot", "--rank", 1)[1] == "hello from rank-1\nmore from rank-1\n"
    assert say("logs", "support-bot", "--source", "driver", "--tail", 1)[1] == "more from driver\n"


@pytest.mark.usefixtures("logged")
def test_logs_with_the_namespaces_storage_secret(hub: Hub, s3_server: S3, say: Say) -> None:
    values = s3_server.environment
    hub.kubectl("delete", "secret", "s3")
    hub.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tuneyard-storage", "namespace": "default"}, "stringData": values}
    )
    assert say("logs", "support-bot", "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"


@pytest.mark.usefixtures("logged")
def test_logs_with_ones_own_credentials(hub: Hub, s3_server: S3, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.kubectl("delete", "secret", "s3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    assert say("logs", "support-bot", "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"


@pytest.mark.usefixtures("logged")
def test_logs_of_what_there_is_not(hub: Hub, say: Say) -> None:
    code, _, err = say("logs", "support-bot", "--rank", 7)
    assert (code, err) == (2, "error: rank 7 has printed nothing in this attempt\nnext: there are: driver, rank-0, rank-1\n")
    code, out, err = say("logs", "support-bot", "--attempt", 1)
    assert (code, out) == (0, "")
    assert "attempt 1 of train has left no logs; it failed: NodeLost: rank 3 stopped answering\nstep 19 loss 2.10\n" in err
    create(hub, make_manifest("fresh"))
    code, _, err = say("logs", "fresh")
    assert (code, "default/fresh has no logs yet: Pending" in err) == (1, True)
    assert say("logs", "support-bot", "--rank", 0, "--source", "rank-0")[0] == 2


def test_following_goes_on_into_the_next_attempt_and_ends_with_the_job(
    hub: Hub, logged: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started("logs", "support-bot", "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(logged)
        store.create(Chunk("train", 2, "rank-0", 3).path, b"lost my node\n")
        attempts = [make_failed_attempt(1), make_failed_attempt(2), make_attempt(3)]
        report(hub, make_running() | {"output": logged, "attempts": attempts})
        read_until(following.stdout, "lost my node")
        store.create(Chunk("train", 3, "rank-0", 1).path, b"resumed\n")
        report(hub, {"phase": "Succeeded", "message": "all tasks succeeded"})
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "resumed\n")
    assert err.endswith("default/support-bot: Succeeded: all tasks succeeded\n")


# --- who may not, and hubs that are not there


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


def test_expired_credentials(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = as_user(hub, tmp_path, valid=datetime.timedelta(minutes=-1))
    code, _, err = say("status", "--kubeconfig", config)
    assert code == 1
    assert err.startswith(
        f"error: the hub at {hub.server} does not accept your credentials: they are missing, wrong or expired\nnext: log in again"
    )


def test_a_token_that_nobody_knows(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "not-a-token"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert (code, "does not accept your credentials" in err) == (1, True)


@pytest.mark.parametrize(
    ("verbs", "words", "verb"),
    [
        (None, ("status",), "list"),
        (["list"], ("status", "support-bot"), "get"),
        (["get"], ("cancel", "support-bot"), "patch"),
        (["get", "list"], ("submit", "FILE"), "create"),
        (["get"], ("clusters",), "list"),
    ],
)
def test_what_rbac_does_not_grant_is_named(
    hub: Hub, tmp_path: Path, file: Path, say: Say, verbs: list[str] | None, words: tuple[str, ...], verb: str
) -> None:
    create(hub)
    config = as_user(hub, tmp_path, **({"verbs": verbs} if verbs else {}))
    code, _, err = say(*(file if word == "FILE" else word for word in words), "--kubeconfig", config)
    assert code == 1
    kind = words[0] if words[0] == "clusters" else "jobspecs"
    assert f"may not {verb} {kind}" in err
    assert f"kubectl auth can-i {verb} {kind}.tuneyard.dev" in err


def test_who_may_get_but_not_watch_can_still_wait(hub: Hub, tmp_path: Path, say: Say) -> None:
    create(hub)
    config = as_user(hub, tmp_path, verbs=["get"])
    later = threading.Timer(1.0, report, (hub, {"phase": "Succeeded"}))
    later.start()
    assert say("wait", "support-bot", "--kubeconfig", config)[:2] == (0, "default/support-bot: Succeeded\n")
    later.join()


@pytest.mark.usefixtures("logged")
def test_secrets_that_may_not_be_read_are_named(hub: Hub, tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    config = as_user(hub, tmp_path, verbs=["get"])
    code, _, err = say("logs", "support-bot", "--kubeconfig", config)
    assert code == 1
    assert "no credentials are in the environment" in err
    assert "may not get secrets in namespace default" in err


def test_a_hub_that_does_not_answer(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert code == 1
    assert err.startswith("error: the hub at https://127.0.0.1:9 does not answer: connection refused\nnext: check that the hub is up")


def test_a_hub_that_is_not_the_one_it_says(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= {"server": hub.server, "tls-server-name": "another.example.com"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert (code, "certificate is not the one that was expected" in err) == (1, True)


def test_no_kubeconfig(tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = say("status")
    assert (code, "no hub is configured" in err) == (1, True)


def test_a_cluster_without_tuneyard(hub: Hub, say: Say) -> None:
    crd = json.loads(hub.kubectl("get", "crd", "clusters.tuneyard.dev", "-o", "json"))
    hub.kubectl("delete", "crd", "clusters.tuneyard.dev")
    try:
        wait_for("the kind to go", lambda: say("clusters")[0] == 1)
        code, _, err = say("clusters")
    finally:
        hub.apply(
            {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": {"name": crd["metadata"]["name"]}, "spec": crd["spec"]}
        )
    assert code == 1
    assert "knows no clusters: Tuneyard is not installed on it" in err
    assert "helm install" in err


@pytest.mark.usefixtures("hub")
def test_two_who_submit_at_once_make_one_job(file: Path) -> None:
    outcomes: list[str] = []
    racing = [threading.Thread(target=lambda: outcomes.append(tuneyard.submit(file).outcome)) for _ in range(8)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert sorted(outcomes) == ["created", *["unchanged"] * 7]


def test_a_change_that_the_operator_overtakes_is_decided_anew(hub: Hub) -> None:
    """The operator starts the job between our look and our write: the write is refused, and so is the change."""
    create(hub)
    client = open_hub()
    send = client._api._send

    def late(request: Any, *rest: Any) -> Any:
        if request.verb == "update":
            report(hub, make_running())
        return send(request, *rest)

    client._api._send = late  # type: ignore[method-assign]
    with pytest.raises(TuneyardError, match="is Running already, and the file differs"):
        client.submit(make_manifest(steps=100))
    assert held(hub)["spec"]["tasks"][0]["train"]["steps"] == 120


# --- kubectl


@pytest.fixture
def kubectl(hub: Hub) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The real one, with its cache apart from that of other clusters."""

    def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        cache = ("--cache-dir", str(hub.folder / "kubectl")) if words[0] in ("get", "create") else ()
        return subprocess.run([binary("kubectl"), *words, *cache], input=stdin, capture_output=True, text=True, check=False)

    return run


Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def test_kubectl_shows_columns_and_knows_short_names(hub: Hub, kubectl: Kubectl) -> None:
    create(hub)
    report(hub, make_running())
    head, line = kubectl("get", "tyj").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "CLUSTER", "SKU", "GPUS", "PROGRESS", "MFU", "AGE"]
    assert line.split()[:7] == ["support-bot", "Running", "gcp-h100", "h100-80gb", "16", "40/120", "0.412"]
    assert "train runs on gcp-h100" in kubectl("get", "tyj", "-o", "wide").stdout
    assert "jobspec.tuneyard.dev/support-bot" in kubectl("get", "tuneyard", "-o", "name").stdout


def wrong(path: str, value: Any) -> dict[str, Any]:
    """The manifest with one value replaced; None removes it."""
    manifest = make_manifest()
    here: Any = manifest
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        here = here[part]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return manifest


TRAIN = "spec.tasks.0.train"


@pytest.mark.parametrize(
    ("path", "value", "where", "why"),
    [
        (f"{TRAIN}.bach", {}, 'unknown field "spec.tasks[0].train.bach"', ""),
        (f"{TRAIN}.objective", "sftt", "spec.tasks[0].train.objective", 'supported values: "sft", "clm", "dpo"'),
        (f"{TRAIN}.batch.global", 0, "spec.tasks[0].train.batch.global", "greater than or equal to 1"),
        (f"{TRAIN}.batch.global", "many", "spec.tasks[0].train.batch.global", 'must be of type integer: "string"'),
        (TRAIN, None, "spec.tasks[0]", "give exactly one of train, score, tune, rank, process"),
        (f"{TRAIN}.epochs", 2, "spec.tasks[0].train", "give epochs or steps, not both"),
        (f"{TRAIN}.method", {"lora": {"rank": 0}}, "spec.tasks[0].train.method.lora", "the rank of an adapter is at least 1"),
        (f"{TRAIN}.data", {}, "spec.tasks[0].train.data", "give exactly one of source, from"),
        ("spec.tasks", [], "spec.tasks", "should have at least 1 items"),
        ("spec", None, "spec", "Required value"),
        ("spec.deadline", "soon", "spec.deadline", "should match"),
        ("spec.priority", "max", "spec.priority", 'supported values: "low", "normal", "high", "urgent"'),
        ("spec.env", [{"name": "A"}], "spec.env[0]", "give exactly one of value, valueFrom"),
        ("metadata.name", "Support_Bot", "metadata.name", "must consist of lower case alphanumeric characters"),
    ],
)
def test_kubectl_refuses_wrong_specs_with_path_and_reason(hub: Hub, kubectl: Kubectl, path: str, value: Any, where: str, why: str) -> None:
    done = kubectl("create", "-f", "-", stdin=as_yaml(wrong(path, value)))
    assert done.returncode == 1
    assert where in done.stderr
    assert why in done.stderr
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_the_plugin_has_the_same_verbs(hub: Hub, kubectl: Kubectl, file: Path) -> None:
    assert "kubectl tuneyard COMMAND" in kubectl("tuneyard").stdout
    done = kubectl("tuneyard", "submit", str(file), "-n", "maps")
    assert (done.returncode, done.stdout) == (0, "maps/support-bot\n")
    report(hub, make_running() | {"progress": make_progress()}, namespace="maps")
    assert "support-bot  Running" in kubectl("tuneyard", "-n", "maps", "status").stdout
    assert kubectl("tuneyard", "status").stdout.startswith("no jobs in namespace default")
    assert kubectl("tuneyard", "cancel", "support-bot", "--namespace=maps").returncode == 0
    report(hub, {"phase": "Cancelled"}, namespace="maps")
    done = kubectl("tuneyard", "wait", "support-bot", "-n", "maps")
    assert (done.returncode, done.stderr.splitlines()[-2]) == (1, "error: maps/support-bot was cancelled")
    assert "no clusters yet" in kubectl("tuneyard", "clusters").stdout


def test_the_plugin_honours_kubectls_flags(hub: Hub, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    here = config["contexts"][0]
    config["contexts"].append({"name": "other", "context": here["context"] | {"namespace": "maps"}})
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    create(hub, make_manifest("in-maps"), "maps")
    done = kubectl("tuneyard", "status", "--kubeconfig", str(tmp_path / "config"), "--context", "other")
    assert "in-maps" in done.stdout
    assert kubectl("tuneyard", "status").returncode == 2


def test_kubectl_completes_verbs_jobs_and_tasks(hub: Hub, kubectl: Kubectl) -> None:
    create(hub)
    verbs = ["submit", "status", "why", "wait", "logs", "cancel", "clusters", "usage"]
    assert kubectl("__complete", "tuneyard", "").stdout.splitlines() == [*verbs, ":4"]
    assert kubectl("__complete", "tuneyard", "why", "supp").stdout.splitlines() == ["support-bot", ":4"]
    assert kubectl("__complete", "tuneyard", "status", "supp").stdout.splitlines() == ["support-bot", ":4"]
    assert kubectl("__complete", "tuneyard", "logs", "support-bot", "--task", "").stdout.splitlines() == ["train", "judge", ":4"]
