"""Run history of a hub for its readers: with the right on a namespace all of it, without the right not even whether it exists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.logs_api.replica import Say, Served
from tests.testcluster.waiting import wait_for
from tests.unit.operators.test_history_rows import attempt, jobspec, moment, status

from tuneyard.api import Phase
from tuneyard.cluster.history_api import USER
from tuneyard.tracking import History
from tuneyard_operators.history.rows import job_key, rows_of

ROOT = "/apis/history.tuneyard.dev/v1alpha1"
API = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.history.tuneyard.dev"
JOB = """
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: bot}
spec:
  tasks:
  - name: train
    train:
      model: {name: meta-llama/Llama-2-7b-hf}
      data: {source: hf://x/y, maxLength: 2048}
      method: {lora: {rank: 16}}
      batch: {global: 64}
      steps: 10
    resources: {sku: [h100-80gb], workers: 8}
"""
SHAPE = {"params_b": 6.738, "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32000}
LAYOUT = {"gpus": 8, "gpus_per_node": 8, "gpu_type": "h100-80gb", "dp": 8, "tp": 1, "pp": 1, "cp": 1, "sharding": "zero0", "zero_stage": 0}
BATCH = {"seq_len": 2048, "micro_batch": 4, "grad_accum": 2, "global_batch": 64, "precision": "bf16", "activation_checkpointing": False}
METHOD = {"offload": "none", "attention_impl": "sdpa", "method": "lora", "lora_rank": 16, "framework": "tuneyard", "packed": 1.0}
SETTINGS = {**SHAPE, **LAYOUT, **BATCH, **METHOD}
NOTHING = r'User "eve" cannot (list|get) resource "pastjobs"'


def recorded(hub: str, name: str, namespace: str = "default", number: int = 0, hours: float = 1.0) -> Any:
    """A job that has succeeded. Jobs with a higher `number` are newer."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{hub}-{namespace}-{name}-{number}", "annotations": {USER: "ana"}}
    item = jobspec(creationTimestamp=moment(number), **metadata)
    return rows_of(item, status(attempt(1, 0, 60 * hours), phase=Phase.SUCCEEDED, finished_at=moment(60 * hours)), hub)


@pytest.fixture(scope="module")
def history(served: Served) -> Iterator[History]:
    """Jobs of this hub in two namespaces, of another hub that shares the database, and one of `tuneyard run`."""
    wait_for("the API of history", lambda: available(served), limit_s=120, words=lambda: served.operator.log[-3000:])
    hub = served.hub.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    found = History.open(f"sqlite:///{served.history}")
    mine = [recorded(hub, f"job-{number:03}", number=number) for number in range(30)]
    found.record([*mine, recorded(hub, "secret-job", "maps", hours=2), recorded("another-hub", "job-of-another-hub")], datetime.now(UTC))
    yield found
    found.close()


def available(served: Served) -> bool:
    conditions = (served.hub.api.get(API).get("status") or {}).get("conditions") or []
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


@pytest.mark.usefixtures("history")
def test_who_may_view_a_namespace_sees_its_past_jobs(say: Say) -> None:
    code, out, err = say("history", "list", "--hub", "--limit", 3)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["name", "job-029", "job-028", "job-027"]
    found = json.loads(say("history", "list", "--hub", "--limit", 1000, "--user", "ana", "-o", "json")[1])
    assert [job["name"] for job in found] == [f"job-{number:03}" for number in reversed(range(30))]
    assert json.loads(say("history", "list", "--hub", "--status", "failed", "-o", "json")[1]) == []
    shown = json.loads(say("history", "show", "job-003", "--hub", "-o", "json")[1])
    assert (shown["attempts"][0]["sku"], shown["attempts"][0]["scores"], shown["cost"]) == ("h100-80gb", {"rouge_l": 0.25}, 20.0)
    assert "default/job-003  succeeded" in say("history", "show", "job-003", "--hub")[1]
    assert "gpu_hours" in say("history", "compare", "job-003", "job-004", "--hub")[1]
    lines = say("history", "export", "--hub", "--format", "csv")[1].splitlines()
    assert len(lines) == 31


@pytest.mark.usefixtures("history")
def test_a_list_comes_page_by_page(served: Served) -> None:
    names, token, pages = [], "", 0
    while token or not pages:
        page = served.hub.api.get(f"{ROOT}/pastjobs?limit=7&continue={token}")
        names += [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in page["items"]]
        token, pages = page["metadata"]["continue"], pages + 1
    assert (len(names), len(set(names)), pages) == (31, 31, 5)
    assert "default/job-of-another-hub" not in names


@pytest.mark.usefixtures("history")
def test_who_lacks_the_right_learns_nothing_not_even_that_a_namespace_exists(served: Served, say: Say, tmp_path: Path) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    as_eve = ("--kubeconfig", str(tmp_path / "eve"), "get", "--raw")
    for path in ("pastjobs", *(f"namespaces/{name}/pastjobs{tail}" for name in ("maps", "none") for tail in ("", "/secret-job", "/none"))):
        with pytest.raises(RuntimeError, match=NOTHING):
            served.hub.kubectl(*as_eve, f"{ROOT}/{path}")
    code, out, err = say("history", "list", "--hub", "-n", "maps")
    assert (code, out) == (1, "")
    assert "ada may not list pastjobs in namespace maps" in err
    assert "secret-job" not in say("history", "list", "--hub", "-A")[1]


@pytest.mark.usefixtures("history")
def test_usage_is_kept_when_jobspecs_are_gone(served: Served, say: Say) -> None:
    whole = served.hub.api.get(f"{ROOT}/usages?since=2025-11-01T00:00:00Z&by=namespace,month")
    assert {(row["namespace"], row["month"]): round(row["gpu_hours"], 3) for row in whole["rows"]} == {
        ("default", "2025-11"): 240.0,
        ("maps", "2025-11"): 8.0,
        ("maps", "2025-12"): 8.0,
    }
    code, out, _ = say("usage", "--by", "month,user,sku", "--since", "2025-11-01", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert [(row["user"], row["sku"], row["jobs"], round(row["gpu_hours"], 2)) for row in found["rows"]] == [
        ("ana", "h100-80gb", 30, 240.0)
    ]
    assert "only the history of namespace default" in found["note"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("pastjobs?limit=x", "no whole number"),
        ("pastjobs?continue=nonsense", "not the end of a page"),
        ("pastjobs?since=yesterday", "is not a time"),
        ("pastjobs?colour=red", "there is no parameter"),
        ("usages?by=colour", "cannot be summed"),
        ("namespaces/default/pastjobs/none", "not found"),
        ("namespaces/default/pastjobs/A_B", "no job can have this name"),
    ],
)
@pytest.mark.usefixtures("history")
def test_a_wrong_question_is_answered_with_what_is_wrong(served: Served, path: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        served.hub.kubectl("get", "--raw", f"{ROOT}/{path}")


def test_ids_of_jobs_are_keys_of_their_uid() -> None:
    assert recorded("h", "a").job["id"] == job_key("h-default-a-0")


def test_the_planner_learns_from_runs_of_two_clusters_within_the_readers_rights(
    served: Served, say: Say, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = served.hub.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path}/own.db")
    before = planned_tokens_per_s(say, file)
    history.record([trained(hub, "fast", "default", "east", 9000.0), trained(hub, "other", "default", "west", 9000.0)], datetime.now(UTC))
    history.record([trained(hub, "secret", "maps", "east", 1.0)], datetime.now(UTC))

    code, out, err = say("history", "import", "--hub")
    assert (code, err) == (0, "")
    assert "2 runs are new, 0 were known already" in out
    assert "default on east" in out
    assert "default on west" in out
    assert planned_tokens_per_s(say, file) != pytest.approx(before, rel=0.02)
    assert "calibrated by 2 runs of your history, 2 of them imported" in say("plan", str(file), "-o", "json")[2]
    assert {job["origin"] for job in json.loads(say("history", "list", "--imported", "-o", "json")[1])} == {"imported"}
    assert "0 runs are new, 2 were known already" in say("history", "import", "--hub")[1]

    code, out, err = say("history", "import", "--hub", "-n", "maps")
    assert (code, out) == (1, "")
    assert "may not list trainingruns in namespace maps" in err
    assert say("history", "import", "--hub", "-A")[0] == 1


def planned_tokens_per_s(say: Say, file: Path) -> float:
    return float(json.loads(say("plan", str(file), "-o", "json")[1])[0]["tokens_per_s"])


def trained(hub: str, name: str, namespace: str, cluster: str, tokens_per_s: float) -> Any:
    """A train attempt on a member, with settings as attempts report them."""
    place = attempt(1).placement
    assert place is not None
    item = jobspec(name=name, namespace=namespace, uid=f"{hub}-{name}")
    ended = attempt(1, 0, 60, placement=place.model_copy(update={"cluster": cluster}), settings=SETTINGS)
    now = status(ended, phase=Phase.SUCCEEDED, finished_at=moment(60))
    now.tasks[0].metrics = {"tokens_per_s": tokens_per_s}
    return rows_of(item, now, hub)


@pytest.mark.usefixtures("history")
def test_a_job_that_is_not_on_record_is_said_to_be_that(say: Say) -> None:
    code, out, err = say("history", "show", "job-999", "--hub")
    assert (code, out) == (2, "")
    assert "not found" in err or "no job" in err
    assert "not installed" not in err
