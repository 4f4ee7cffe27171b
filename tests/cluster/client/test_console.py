"""The console over a hub: queue, jobs, clusters and teams, with the rights of the reader."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.builders.hub_jobs import make_attempt, make_failed_attempt, make_manifest, make_placement, make_running
from tests.clusters.hub_client import as_user, create, held, report
from tests.servers.chromium import browser, violations
from tests.servers.consoles import HOSTILE, console
from tests.testcluster import Hub

from tuneyard.cluster import open_hub
from tuneyard.cluster.api_server import ApiServer
from tuneyard.console import create_app
from tuneyard.console.hub import HubJobs, OneReader
from tuneyard.kubernetes import Request
from tuneyard.kubernetes.kinds import JOBSPEC

ADDRESS = "http://127.0.0.1:7420"
OWN = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
API = "tuneyard.dev/v1alpha1"


def open_console(kubeconfig: Path) -> TestClient:
    app = create_app(HubJobs(OneReader(open_hub(kubeconfig=kubeconfig))))
    return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False, follow_redirects=False)


def make_cluster(nodes: int = 3) -> dict[str, Any]:
    spec = {"skus": [{"name": "h100-80gb", "nodes": nodes, "gpusPerNode": 8}]}
    return {"apiVersion": API, "kind": "Cluster", "metadata": {"name": "gcp-h100"}, "spec": spec}


@pytest.fixture
def fleet(hub: Hub) -> Hub:
    """A running job, one that waits, one that failed; a cluster of three nodes, of which one is down; a team."""
    create(hub)
    report(hub, make_running())
    create(hub, make_manifest("waits", priority="high"))
    message = "gcp-h100: 3 of 4 nodes free"
    report(hub, {"phase": "Queued", "message": message, "expectedStart": "2031-11-21T14:20:00Z"}, "waits")
    create(hub, make_manifest("broken"))
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    failed = {"phase": "Failed", "message": "<b>rank 3</b> stopped answering", "attempts": [make_failed_attempt()], "finishedAt": now}
    report(hub, failed, "broken")
    hub.apply(make_cluster())
    nodes = [{"name": f"n{n}", "sku": "h100-80gb", "gpus": 8, "free": 8 if n != 3 else 6, "ready": n != 2} for n in (1, 2, 3)]
    hub.api.patch("/apis/tuneyard.dev/v1alpha1/clusters/gcp-h100/status", {"status": {"healthy": True, "nodes": nodes}})
    hub.apply({"apiVersion": API, "kind": "Team", "metadata": {"name": "maps"}, "spec": {"quota": {"h100-80gb": 16}}})
    return hub


@pytest.fixture
def client(fleet: Hub) -> TestClient:
    return open_console(fleet.kubeconfig)


def test_pages_of_a_hub(fleet: Hub) -> None:
    client = open_console(fleet.kubeconfig)
    overview = client.get("/").text
    assert "gcp-h100: 3 of 4 nodes free" in overview
    assert "&lt;b&gt;rank 3&lt;/b&gt; stopped answering" in overview
    queue = client.get("/queue").text
    assert "1 job waits" in queue
    assert "2031-11-21" in queue
    assert "1 job<" in client.get("/jobs?q=WAIT").text
    assert "1 job<" in client.get("/jobs?status=failed").text
    clusters = client.get("/clusters").text
    assert "8 held, 2 of others, 6 free, 8 not ready" in clusters
    assert "n2: 8 GPUs, not ready" in clusters
    assert "16 h100-80gb" in client.get("/teams").text


def test_a_job_page_shows_attempts_failures_and_reasons(fleet: Hub) -> None:
    client = open_console(fleet.kubeconfig)
    running = client.get("/jobs/support-bot").text
    for shown in ("NodeLost: rank 3 stopped answering", "loss 1.832", "step 40/120", "Next:</b> nothing: it goes on elsewhere"):
        assert shown in running
    waiting = client.get("/jobs/waits?namespace=default").text
    assert "expected start" in waiting
    place = "/jobs/waits/reasons?namespace=default"
    assert f'hx-get="{place}"' in waiting, "the page waits for no other job"
    reasons = client.get(place).text
    assert "Why it waits" in reasons
    assert "<b><bdi>train</bdi></b>" in reasons
    assert client.get("/jobs/support-bot/reasons").text.strip() == ""
    assert client.get("/jobs/no-such-job/reasons").status_code == 404


def test_pages_read_no_whole_jobspecs_but_those_that_hold_gpus(fleet: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 23 jobs runs, and one has ended whose attempt is not cleaned up."""
    for number in range(20):
        create(fleet, make_manifest(f"ended-{number}"))
        report(fleet, {"phase": "Succeeded", "attempts": [{**make_attempt(task="train"), "cleaned": True}]}, f"ended-{number}")
    left = {**make_failed_attempt(), "placement": {**make_placement(gpus=6), "nodes": {"n3": 6}}, "cleaned": False}
    report(fleet, {"phase": "Failed", "attempts": [left]}, "broken")
    whole: list[Request] = []
    one: list[Request] = []
    monkeypatch.setattr(ApiServer, "list", spied(ApiServer.list, whole))
    monkeypatch.setattr(ApiServer, "ask", spied(ApiServer.ask, one))
    client = open_console(fleet.kubeconfig)
    pages = {path: client.get(path).text for path in ("/clusters", "/teams", "/overview/gpus", "/jobs/waits", "/", "/queue")}
    assert [request.kind.name for request in whole if request.kind is JOBSPEC] == []
    assert {request.name for request in one if request.kind is JOBSPEC and request.verb == "get"} == {"support-bot", "broken", "waits"}
    assert "24 GPUs: 14 held" in pages["/clusters"]
    assert 'hx-get="/teams/usage"' in pages["/teams"]
    assert "16 h100-80gb" in pages["/teams"]
    usage = client.get("/teams/usage").text
    assert [request.verb for request in whole if request.kind is JOBSPEC] == ["list"]
    assert "Use in 30 days" in usage
    assert usage in client.get("/teams").text, "what is at hand is shown at once"


def spied(method: Any, seen: list[Request]) -> Any:
    """The method, which notes the requests that it is asked."""

    def call(self: ApiServer, request: Request, **how: Any) -> Any:
        seen.append(request)
        return method(self, request, **how)

    return call


def test_a_job_is_suspended_resumed_and_cancelled_after_a_confirmation(fleet: Hub) -> None:
    client = open_console(fleet.kubeconfig)
    for action, field, value in (("suspend", "suspend", True), ("resume", "suspend", False), ("cancel", "cancelled", True)):
        assert f'/jobs/support-bot/{action}?namespace=default"' in client.get("/jobs/support-bot").text
        asked = client.get(f"/jobs/support-bot/{action}?namespace=default").text
        token = re.search(r'name="token" value="([0-9a-f]+)"', asked)
        assert token
        form = {"token": token[1], "namespace": "default"}
        assert client.post(f"/jobs/support-bot/{action}", data={**form, "token": "x"}, headers=OWN).status_code == 400
        assert client.post(f"/jobs/support-bot/{action}", data=form).status_code == 403
        assert held(fleet)["spec"].get(field, False) is not value
        answer = client.post(f"/jobs/support-bot/{action}", data=form, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/support-bot?namespace=default")
        assert held(fleet)["spec"][field] is value
    assert "Cancelling" not in client.get("/jobs/broken").text
    assert "/cancel" not in client.get("/jobs/support-bot").text.replace("cancelling", "")


def test_a_reader_sees_one_namespace_and_no_trace_of_another(fleet: Hub, tmp_path: Path) -> None:
    create(fleet, make_manifest("secret-job", "maps"), "maps")
    client = open_console(as_user(fleet, tmp_path, verbs=["get", "list"]))
    overview = client.get("/").text
    assert "support-bot" in overview
    assert "secret-job" not in overview + client.get("/jobs").text
    assert "only jobs of namespace default are counted" in overview
    hidden = client.get("/jobs/secret-job?namespace=maps")
    absent = client.get("/jobs/no-such-job?namespace=maps")
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace("secret-job", "X") == absent.text.replace("no-such-job", "X")


def test_a_reader_without_the_right_to_cancel_is_told_so(fleet: Hub, tmp_path: Path) -> None:
    client = open_console(as_user(fleet, tmp_path, verbs=["get", "list"]))
    token = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/jobs/support-bot/cancel").text)
    assert token
    answer = client.post("/jobs/support-bot/cancel", data={"token": token[1], "namespace": "default"}, headers=OWN)
    assert answer.status_code == 403
    assert "may not patch jobspecs" in answer.text
    assert not held(fleet)["spec"].get("cancelled")


def test_an_expired_token_is_a_page_with_the_next_step(hub: Hub, tmp_path: Path) -> None:
    client = open_console(as_user(hub, tmp_path, valid=datetime.timedelta(minutes=-1)))
    for path in ("/", "/jobs", "/jobs/support-bot", "/clusters"):
        answer = client.get(path)
        assert answer.status_code == 401, path
        assert "log in again" in answer.text


def test_pages_of_a_hub_in_a_browser(fleet: Hub, tmp_path: Path) -> None:
    with console(tmp_path, "--kubeconfig", str(fleet.kubeconfig)) as address, browser(tmp_path) as tab:
        for path in ("/", "/queue", "/jobs", "/jobs/support-bot", "/jobs/waits", "/jobs/waits/cancel", "/clusters", "/teams"):
            for width, dark in ((1280, False), (360, True)):
                seen = tab.look(f"{address}{path}", width=width, dark=dark, settle_s=0.1, pictured=False)
                assert (seen.errors, seen.width <= width) == ([], True), path
                assert [url for url in seen.requests if not url.startswith((address, "data:"))] == [], path
            assert violations(tab) == [], path
        tab.look(f"{address}/jobs/support-bot", pictured=False)
        report(fleet, {**make_running(), "message": "train has moved to dca-a100"})
        tab.wait_for("document.body.innerText.includes('train has moved to dca-a100')", limit_s=5)


PATHS = ("/", "/queue", "/jobs", "/clusters", "/teams", "/jobs/{}", "/jobs/{}/logs", "/jobs/{}/cancel", "/jobs/{}/{}", "/static/{}")
TEXTS = st.one_of(st.sampled_from(["support-bot", "waits", "broken", "cancel", "suspend", "..", "-1", "\0", HOSTILE]), st.text(max_size=12))
PARAMETERS = ("q", "status", "team", "after", "namespace", "attempt", "source", "find")
VALUES = st.lists(st.tuples(st.sampled_from(PARAMETERS), TEXTS), max_size=3)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), name=TEXTS, values=VALUES, post=st.booleans())
def test_no_request_fails_with_a_bug(client: TestClient, path: str, name: str, values: list[tuple[str, str]], post: bool) -> None:
    target = f"{path.format(*[quote(name, safe='')] * 2)}?{urlencode(values, errors='replace')}"
    answer = client.post(target, content=b"token=x", headers=OWN) if post else client.get(target)
    assert answer.status_code < 500 or "/logs" in target, answer.text  # this hub serves no logs
    assert "bug in Tuneyard" not in answer.text


def test_a_hub_that_is_away_is_a_page(tmp_path: Path) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    config = {"clusters": [cluster], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
    import yaml

    (tmp_path / "config").write_text(yaml.safe_dump({**config, "users": [{"name": "u", "user": {}}]}))
    answer = open_console(tmp_path / "config").get("/queue")
    assert answer.status_code == 502
    assert "<b>Next:</b>" in answer.text
