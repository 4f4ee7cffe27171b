"""`tuneyard submit`: taken once, changed until it starts, refused with the line of the file."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.builders.hub_jobs import as_yaml, make_attempt, make_manifest, make_running
from tests.clusters.hub_client import JOBS, Say, create, held, report
from tests.clusters.hubs import remove_all
from tests.servers.installs import install
from tests.servers.notebooks import Cell, notebook
from tests.testcluster import Hub
from tests.testcluster.waiting import wait_for

import tuneyard
from tuneyard.api import BadInput, JobFailed, load_jobspec
from tuneyard.cli import main


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
        "shipped": [],
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


TEMPLATE: dict[str, Any] = {
    "apiVersion": "tuneyard.dev/v1alpha1",
    "kind": "ModelTemplate",
    "metadata": {"name": "small"},
    "spec": {
        "train": {"model": {"name": "models/base"}, "batch": {"global": 32}},
        "job": {"image": "registry/base:1"},
        "fixed": ["job.image"],
    },
}


@pytest.fixture
def template(hub: Hub) -> Iterator[str]:
    hub.apply(TEMPLATE)
    yield "small"
    remove_all(hub, "modeltemplates")


def by_template(path: Path, name: str, **spec: Any) -> Path:
    manifest = make_manifest(template=name, **spec)
    for field in ("model", "batch"):
        del manifest["spec"]["tasks"][0]["train"][field]
    path.write_text(as_yaml(manifest))
    return path


def test_a_job_by_a_template_is_checked_with_it_and_sent_as_it_is(hub: Hub, tmp_path: Path, template: str, say: Say) -> None:
    file = by_template(tmp_path / "job.yaml", template)
    code, out, err = say("submit", file)
    assert (code, out) == (0, "default/support-bot\n"), err
    spec = held(hub)["spec"]
    assert (spec["template"], "image" in spec, spec["tasks"][0]["train"]) == (
        "small",
        False,
        {"data": {"source": "s3://data/chats.jsonl"}, "steps": 120},
    ), "the hub fills it in, by the template of the day on which the job begins"
    code, _, err = say("submit", file)
    assert (code, "there already and the same" in err) == (0, True)
    code, _, err = say("submit", file, "--dry-run")
    assert code == 0, err


def test_a_template_that_the_hub_lacks_or_that_allows_no_such_job_has_its_line(hub: Hub, tmp_path: Path, template: str, say: Say) -> None:
    code, _, err = say("submit", by_template(tmp_path / "job.yaml", "smal"))
    assert (code, "has no ModelTemplate smal; did you mean small?" in err) == (2, True), err
    code, _, err = say("submit", by_template(tmp_path / "job.yaml", template, image="mine"))
    assert code == 2
    assert 'spec.image: the ModelTemplate small fixes it to "registry/base:1"; found "mine"' in err
    assert hub.api.get(JOBS.format("default"))["items"] == []


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


def test_the_install_without_extras_is_a_whole_client(hub: Hub, file: Path, tmp_path: Path) -> None:
    client = install(tmp_path / "venv")

    words = {
        f"submit {file}": "support-bot",
        "status": "support-bot",
        "why support-bot": "waits for",
        "cancel support-bot": "support-bot",
        "clusters": "",
        "usage": "",
    }
    for line, (code, out, err) in client.run_lines(list(words), cwd=tmp_path, KUBECONFIG=str(hub.kubeconfig)).items():
        assert (code, words[line] in out + err) == (0, True), (out, err)
        assert "bug in Tuneyard" not in err, err
    assert held(hub)["spec"]["tasks"]


def test_a_shell_completes_names_of_jobs(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    create(hub)
    for line in ("tuneyard logs sup", "tuneyard cancel --namespace default sup"):
        monkeypatch.setenv("_TUNEYARD_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert main([]) == 0
        assert capsys.readouterr().out.split() == ["support-bot"]


@pytest.mark.usefixtures("hub")
def test_from_python(file: Path) -> None:
    made = tuneyard.submit(file)
    assert (made.outcome, made.job.label) == ("created", "default/support-bot")
    assert tuneyard.submit(str(file)).outcome == "unchanged"
    assert tuneyard.submit(load_jobspec(file)).outcome == "unchanged"


def test_rows_that_cannot_be_used_are_refused_before_anything_is_shipped(hub: Hub, file: Path) -> None:
    (file.parent / "chats.jsonl").write_text('{"nothing": "here", "of": "use"}\n')
    file.write_text(file.read_text().replace("s3://data/chats.jsonl", "chats.jsonl"))
    with pytest.raises(BadInput, match=r"spec\.tasks\[0\]\.train\.data\.source: .*of no known format"):
        tuneyard.submit(file, out="s3://nowhere/out")
    assert hub.api.get(JOBS.format("default"))["items"] == []


WAITED_FOR = "import tuneyard\nmade = tuneyard.submit('job.yaml', wait=True)\nprint(made.outcome, made.job.phase)"


@pytest.mark.usefixtures("file")
def test_a_notebook_shows_each_task_until_it_is_stopped_or_the_job_has_ended(hub: Hub, tmp_path: Path) -> None:
    with notebook(tmp_path, {**os.environ, "KUBECONFIG": str(hub.kubeconfig)}) as kernel:
        cell, reported, stopped = Cell(), False, False
        for _ in kernel.watch(WAITED_FOR, cell):
            if "Pending" in cell.shown and not reported:
                report(hub, make_running())
                reported = True
            if "train runs on gcp-h100" in cell.shown and not stopped:
                kernel.interrupt()
                stopped = True
        assert (cell.error, cell.printed) == ("", "created Running\n")
        assert f"default/support-bot: submitted to the hub at {hub.server}" in cell.shown
        assert "default/support-bot continues unwatched; wait again: tuneyard wait support-bot -n default" in cell.shown

        again = Cell()
        for _ in kernel.watch(WAITED_FOR, again):
            if "train runs on gcp-h100" in again.shown and held(hub)["status"]["phase"] == "Running":
                report(hub, {"phase": "Succeeded", "message": "all tasks succeeded", "tasks": [{"name": "train", "phase": "Succeeded"}]})
        assert (again.error, again.printed) == ("", "unchanged Succeeded\n")
        assert "✓ train" in again.shown


def test_from_python_a_job_that_fails_while_it_is_waited_for_is_an_error(hub: Hub, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(hub)
    report(hub, {"phase": "Running", "attempts": [make_attempt(1)]})
    failing = threading.Timer(1.0, report, (hub, {"phase": "Failed", "message": "train: the disk is full"}))
    failing.start()
    with pytest.raises(JobFailed, match="default/support-bot failed: train: the disk is full"):
        tuneyard.submit(file, wait=True, progress=True)
    failing.join()
    assert "there already and the same, Running" in capsys.readouterr().err
