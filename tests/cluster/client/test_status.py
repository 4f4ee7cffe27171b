"""What the hub says of jobs and clusters: `status`, `clusters`, `wait`, `cancel`."""

from __future__ import annotations

import datetime
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.builders.hub_jobs import make_failed_attempt, make_manifest, make_running
from tests.clusters.hub_client import JOBS, Say, create, held, read_until, report, started
from tests.testcluster import Hub
from tests.testcluster.waiting import wait_for

from tuneyard.api import JobFailed
from tuneyard.cluster import open_hub


def test_a_table_of_jobs(hub: Hub, say: Say) -> None:
    assert say("status")[1] == "no jobs in namespace default: start one with `tuneyard submit FILE`; -A looks in all namespaces\n"
    create(hub)
    create(hub, make_manifest("other"), "maps")
    report(hub, make_running())
    _, out, _ = say("status")
    head, line = out.splitlines()
    assert head.split() == ["name", "phase", "cluster", "sku", "gpus", "progress", "loss", "MFU", "ETA", "age", "message"]
    assert re.fullmatch(
        r"support-bot  Running  gcp-h100  h100-80gb    16  step 40/120 33%  1.832  41.2%  1:12:00  +\d+s  +train runs on gcp-h100", line
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
    assert " ".join(lines[1].split()) == "gcp-h100 no h100-80gb - 0 0 16 2.5 never no not looked at yet by the hub's operator"
    nodes = [
        {"name": "a", "sku": "h100-80gb", "gpus": 8, "free": 3},
        {"name": "b", "sku": "h100-80gb", "gpus": 8, "free": 8, "ready": False},
    ]
    heartbeat = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"healthy": True, "heartbeat": heartbeat, "nodes": nodes, "message": "b is not ready"}
    hub.api.patch("/apis/tuneyard.dev/v1alpha1/clusters/gcp-h100/status", {"status": status})
    hub.api.patch("/apis/tuneyard.dev/v1alpha1/clusters/gcp-h100", {"spec": {"cordoned": True}})
    told = json.loads(say("clusters", "-o", "json")[1])[0]
    assert (told["healthy"], told["cordoned"]) == (True, True)
    assert told["skus"][0] == {"sku": "h100-80gb", "free": 3, "held": 0, "down": 8, "total": 16, "price_per_gpu_hour": 2.5}
    assert 0 <= told["heartbeat_age_s"] < 60


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
    hub.api.delete(f"{JOBS.format('default')}/support-bot")
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
    assert "cancelled" not in held(hub)["spec"]


def test_a_sleeping_server_is_told_apart_from_a_suspended_one(hub: Hub, say: Say) -> None:
    def generation() -> int:
        return int(hub.api.get(f"{JOBS.format('default')}/support-bot")["metadata"]["generation"])

    create(hub)
    nap = {"number": 1, "task": "train", "token": 1, "phase": "Preempted", "endedAt": "2026-11-21T12:00:00Z", "asleepAt": 1, "door": "open"}
    report(hub, {"phase": "Queued", "message": "asleep: train: no request for 900 s", "attempts": [nap]})
    assert "default/support-bot  Asleep" in say("status", "support-bot")[1]
    assert "asleep: train: no request for 900 s" in say("why", "support-bot")[1]
    for _ in range(3):  # each is a change that wakes it, whatever the spec said before
        before = generation()
        assert "goes on once there are machines" in say("resume", "support-bot")[1]
        assert generation() == before + 1
        assert not hub.api.get(f"{JOBS.format('default')}/support-bot")["spec"].get("suspend")
    assert "is suspended" in say("suspend", "support-bot")[1]
    assert "default/support-bot  Suspended" in say("status", "support-bot")[1]
    assert "was suspended already" in say("suspend", "support-bot")[1]
    assert "goes on once there are machines" in say("resume", "support-bot")[1]
    report(hub, {"phase": "Queued", "message": "", "attempts": [nap | {"wokenAt": "2026-11-21T12:01:00Z"}]})
    assert "default/support-bot  Queued" in say("status", "support-bot")[1]
    assert "is not suspended" in say("resume", "support-bot")[1]
