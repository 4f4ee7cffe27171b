"""kubectl beside the client: columns, refusals, and the plugin."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.hub_jobs import as_yaml, make_manifest, make_progress, make_running
from tests.clusters.hub_client import JOBS, Kubectl, create, held, report
from tests.clusters.hubs import until
from tests.testcluster import Hub
from tests.testcluster.kubeapi import Refused
from tests.unit.docs.markdown import manual


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
SCORE = "spec.tasks.1.score"
ENDPOINT = {"url": "https://api.example.com/v1", "model": "small"}
HARNESS = {"tasks": ["arc_easy"]}


@pytest.mark.parametrize(
    ("path", "value", "where", "why"),
    [
        (f"{TRAIN}.bach", {}, 'unknown field "spec.tasks[0].train.bach"', ""),
        (f"{TRAIN}.objective", "sftt", "spec.tasks[0].train.objective", 'supported values: "sft", "clm", "dpo"'),
        (f"{TRAIN}.batch.global", 0, "spec.tasks[0].train.batch.global", "greater than or equal to 1"),
        (f"{TRAIN}.batch.global", "many", "spec.tasks[0].train.batch.global", "should match '^(auto)$'"),
        (TRAIN, None, "spec.tasks[0]", "give exactly one of train, score, tune, rank, process"),
        (f"{TRAIN}.epochs", 2, "spec.tasks[0].train", "give epochs or steps, not both"),
        (f"{TRAIN}.method", {"lora": {"rank": 0}}, "spec.tasks[0].train.method.lora", "the rank of an adapter is at least 1"),
        (f"{TRAIN}.data", {}, "spec", "train needs a model (name or from) or a program, and data (source, from or mix), unless a template"),
        (f"{TRAIN}.data", {"source": "s3://b/x", "from": "corpus"}, "spec.tasks[0].train.data", "give exactly one of source, from"),
        (f"{TRAIN}.model", None, "spec", "train needs a model (name or from) or a program"),
        ("spec.tasks.1.score.model", None, "spec", "score needs a model (name or from) or an endpoint, and data"),
        ("spec.tasks", [], "spec.tasks", "should have at least 1 items"),
        ("spec", None, "spec", "Required value"),
        ("spec.deadline", "soon", "spec.deadline", "should match"),
        ("spec.priority", "max", "spec.priority", 'supported values: "low", "normal", "high", "urgent"'),
        ("spec.env", [{"name": "A"}], "spec.env[0]", "give exactly one of value, valueFrom"),
        (f"{TRAIN}.data.source", "chats.jsonl", "spec.tasks[0].train.data", "`tuneyard submit FILE` ships it, kubectl does not"),
        (f"{TRAIN}.model.name", "./base", "spec.tasks[0].train.model", "`tuneyard submit FILE` ships it, kubectl does not"),
        ("spec.tasks.1", {"name": "p", "process": {"command": ["./x"], "workingDir": "tools"}}, "spec.tasks[1].process", "use a URI"),
        (f"{SCORE}.embedding", {"model": "./small"}, "spec.tasks[1].score.embedding", "`tuneyard submit FILE` ships it, kubectl does not"),
        (
            f"{SCORE}.embedding",
            {"model": "m", "endpoint": ENDPOINT},
            "spec.tasks[1].score.embedding",
            "exactly one of model, endpoint",
        ),
        (f"{SCORE}.embedding", {"revision": "r", "endpoint": ENDPOINT}, "spec.tasks[1].score.embedding", "leave revision out"),
        (
            f"{SCORE}.data",
            {"source": "s3://b/x", "lmEval": HARNESS},
            "spec.tasks[1].score.data",
            "give exactly one of source, from, lmEval",
        ),
        (f"{SCORE}.data", {"lmEval": {**HARNESS, "folder": "mine"}}, "spec.tasks[1].score.data.lmEval", "`tuneyard submit FILE` ships it"),
        (f"{SCORE}.data", {"lmEval": HARNESS, "limit": 5}, "spec.tasks[1].score.data", "bring their own: leave prompt, reference"),
        ("spec.template", "No_Name", "spec.template", "should match"),
        ("spec.placement", {"spread": "allowed"}, "spec.placement", "a gang runs in one cluster"),
        ("spec.tasks.1", {"name": "search", "tune": {"task": "search"}}, "spec", "only a train or rank task can be tuned"),
        ("spec.env", [{"name": "RAY_AUTH_MODE", "value": "disabled"}], "spec.env[0]", "an attempt's Ray has its own token"),
        ("metadata.name", "Support_Bot", "metadata.name", "must consist of lower case alphanumeric characters"),
    ],
)
def test_wrong_specs_are_refused_with_path_and_reason(hub: Hub, path: str, value: Any, where: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        hub.api.create(f"{JOBS.format('default')}?fieldValidation=Strict", wrong(path, value))
    assert where in str(refused.value)
    assert why in str(refused.value)
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_kubectl_shows_path_and_reason_of_a_refusal(hub: Hub, kubectl: Kubectl) -> None:
    unknown = kubectl("create", "-f", "-", stdin=as_yaml(wrong(f"{TRAIN}.bach", {})))
    assert (unknown.returncode, 'unknown field "spec.tasks[0].train.bach"' in unknown.stderr) == (1, True)
    none = kubectl("create", "-f", "-", stdin=as_yaml(wrong(TRAIN, None)))
    assert (none.returncode, "spec.tasks[0]" in none.stderr) == (1, True)
    assert "give exactly one of train, score, tune, rank, process" in none.stderr
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_kubectl_creates_a_job_with_tasks_of_the_harness_and_nothing_beside_them(hub: Hub, kubectl: Kubectl) -> None:
    made = wrong(f"{SCORE}.data", {"lmEval": HARNESS})
    made["spec"]["tasks"][1]["score"]["metrics"] = ["exact_match"]
    refused = kubectl("create", "-f", "-", stdin=as_yaml(made))
    assert "bring their own: leave metrics" in refused.stderr
    del made["spec"]["tasks"][1]["score"]["metrics"]
    done = kubectl("create", "-f", "-", stdin=as_yaml(made))
    assert (done.returncode, done.stderr) == (0, "")
    assert held(hub)["spec"]["tasks"][1]["score"]["data"] == {"lmEval": HARNESS}


def test_kubectl_creates_a_job_whose_texts_an_endpoint_embeds(hub: Hub, kubectl: Kubectl) -> None:
    made = wrong(f"{SCORE}.embedding", {"endpoint": ENDPOINT})
    score = made["spec"]["tasks"][1]["score"]
    score["metrics"], score["data"]["reference"] = ["embedding_similarity"], "answer"
    done = kubectl("create", "-f", "-", stdin=as_yaml(made))
    assert (done.returncode, done.stderr) == (0, "")
    assert held(hub)["spec"]["tasks"][1]["score"]["embedding"] == {"endpoint": ENDPOINT}


def test_a_job_that_an_older_version_stored_can_still_be_written(hub: Hub, kubectl: Kubectl) -> None:
    """Its CRD took `spread: allowed`. A status and a finalizer can be written to such a job though today's CRD refuses the value."""
    older = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobspecs.tuneyard.dev"
    today = hub.api.get(where)["spec"]["versions"]
    schema = deepcopy(today)
    schema[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["placement"] = older
    stored = wrong("spec.placement", {"spread": "allowed"})
    try:
        hub.api.patch(where, {"spec": {"versions": schema}})
        until(lambda: kubectl("create", "-f", "-", stdin=as_yaml(stored)).returncode == 0, "a job as an older version takes it")
    finally:
        hub.api.patch(where, {"spec": {"versions": today}})
    again = {**stored, "metadata": {"name": "again"}}
    until(lambda: kubectl("create", "--dry-run=server", "-f", "-", stdin=as_yaml(again)).returncode == 1, "today's CRD again")
    report(hub, make_running())
    hub.api.patch(f"{JOBS.format('default')}/support-bot", {"metadata": {"finalizers": ["tuneyard.dev/members"]}})
    assert held(hub)["status"]["phase"] == "Running"
    assert "support-bot  Running" in kubectl("tuneyard", "status").stdout
    hub.api.patch(f"{JOBS.format('default')}/support-bot", {"metadata": {"finalizers": None}})


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
    verbs = ["submit", "status", "why", "wait", "logs", "cancel", "suspend", "resume", "clusters", "usage", "schedule"]
    assert kubectl("__complete", "tuneyard", "").stdout.splitlines() == [*verbs, ":4"]
    assert kubectl("__complete", "tuneyard", "why", "supp").stdout.splitlines() == ["support-bot", ":4"]
    assert kubectl("__complete", "tuneyard", "status", "supp").stdout.splitlines() == ["support-bot", ":4"]
    assert kubectl("__complete", "tuneyard", "schedule", "pa").stdout.splitlines() == ["pause", ":4"]
    assert kubectl("__complete", "tuneyard", "logs", "support-bot", "--task", "").stdout.splitlines() == ["train", "judge", ":4"]


def test_an_api_server_admits_every_object_that_the_docs_show(hub: Hub, tmp_path: Path) -> None:
    shown = [block.text for page in manual() if page.name != "README.md" for block in page.blocks if block.language == "yaml"]
    file, objects = tmp_path / "docs.yaml", [text for text in shown if "kind: " in text]
    shipped = [text for text in objects if "program: " in text]  # with the module and the data that lie beside it
    admitted = [text for text in objects if text not in shipped]

    file.write_text("---\n".join(admitted))
    said = hub.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(file))

    assert len(said.splitlines()) == sum(len(text.split("---\n")) for text in admitted) >= 5
    assert {line.split(".")[0] for line in said.splitlines()} == {"cluster", "jobspec", "modeltemplate", "rolebinding", "schedule", "team"}
    for text in shipped:
        file.write_text(text)
        with pytest.raises(RuntimeError, match=r"`tuneyard submit FILE` ships it"):
            hub.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(file))
