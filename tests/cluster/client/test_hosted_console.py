"""The console of a hub for many readers, over a real API server: by token, and behind a proxy."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette import testclient
from tests.builders.hub_jobs import make_failed_attempt, make_manifest, make_running
from tests.clusters.hosted_consoles import (
    ADDRESS,
    OWN,
    READER,
    SECRET,
    SYSTEM,
    bind,
    by_proxy,
    by_token,
    form_token,
    hosted_console,
    log_in,
    make_account,
)
from tests.clusters.hub_client import JOBS, create, held, report
from tests.clusters.hubs import remove_all
from tests.servers.chromium import browser, violations
from tests.servers.consoles import HOSTILE
from tests.testcluster import Hub

from tuneyard.cluster import open_hub
from tuneyard.cluster.job_table import facts_of
from tuneyard.console.hosted.metrics import ConsoleMetrics
from tuneyard.console.hosted.proxy import networks_of
from tuneyard.console.hub.rows import rows_of
from tuneyard.console.streams import SHARE

API = "tuneyard.dev/v1alpha1"
PAGES = ("/", "/queue", "/jobs", "/schedules", "/clusters", "/teams", "/history", "/jobs/support-bot", "/jobs/support-bot/logs")


def make_schedule() -> dict[str, Any]:
    template = {"spec": {"tasks": [{"name": "say", "process": {"command": ["true"]}}]}}
    return {
        "apiVersion": API,
        "kind": "Schedule",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin", "template": template},
    }


def scheduled(number: int, verdict: str, value: float) -> dict[str, Any]:
    figure = {"task": "judge", "name": "exact_match", "value": value}
    due = f"2026-11-{number:02}T01:00:00Z"
    return {"name": f"nightly-{number}", "due": due, "phase": "Succeeded", "verdict": verdict, "message": HOSTILE, "figures": [figure]}


@pytest.fixture(scope="module")
def ada(hub_server: Hub, kubeconfig: Path) -> str:
    """The token of a reader of the namespaces default and maps."""
    assert kubeconfig.is_file()  # the role is made with it
    return make_account(hub_server, "ada", role=READER, namespaces=["default", "maps"])


@pytest.fixture(scope="module")
def eve(hub_server: Hub) -> str:
    """The token of an account without rights."""
    return make_account(hub_server, "eve")


@pytest.fixture
def fleet(hub: Hub) -> Iterator[Hub]:
    """A running job, one that failed, one of another namespace that ada may not see, a schedule with runs."""
    hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vault"}})
    create(hub)
    report(hub, make_running())
    create(hub, make_manifest("broken"))
    failed = {"phase": "Failed", "message": HOSTILE, "attempts": [make_failed_attempt()], "observedGeneration": 1}
    report(hub, failed, "broken")
    create(hub, make_manifest("secret-job", "vault"), "vault")
    hub.apply(make_schedule())
    waiting = [
        {"name": "nightly-26", "due": "2026-11-26T01:00:00Z", "since": "2026-11-26T01:00:00Z", "path": "s3://rows/26", "message": ""}
    ]
    runs = [scheduled(24, "good", 0.41), scheduled(25, "regressed", 0.31)]
    status = {"runs": runs, "waiting": waiting, "nextRun": "2031-11-27T01:00:00Z", "lastRun": "2026-11-25T01:00:00Z"}
    hub.api.patch(f"/apis/{API}/namespaces/default/schedules/nightly/status", {"status": status})
    yield hub
    remove_all(hub, "schedules")


# --- by token


def test_a_reader_logs_in_sees_their_namespaces_and_no_trace_of_others(fleet: Hub, kubeconfig: Path, ada: str) -> None:
    client = by_token(kubeconfig)
    assert client.get("/jobs").status_code == 401
    answer = log_in(client, ada, "/jobs?q=bot")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?q=bot")
    cookies = answer.headers.get_list("set-cookie")
    kept = [each for each in cookies if each.startswith("tuneyard_reader_0=") and "Max-Age=0" not in each]
    assert kept
    assert all("HttpOnly" in each and "SameSite=strict" in each and "Secure" in each for each in kept)
    assert ada not in str(cookies)
    create(fleet, make_manifest("route-bot", "maps"), "maps")
    overview = client.get("/jobs").text
    assert "support-bot" in overview
    assert "route-bot" in overview
    for path in PAGES:
        text = client.get(path).text
        assert "secret-job" not in text, path
        assert "vault" not in text, path
    hidden, absent = client.get("/jobs/secret-job?namespace=vault"), client.get("/jobs/secret-job?namespace=no-such")
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace("vault", "no-such") == absent.text
    assert client.post("/logout", data={"token": form_token(overview)}, headers=OWN).status_code == 303
    assert client.get("/jobs").status_code == 401


@pytest.mark.usefixtures("fleet")
def test_nothing_is_readable_without_rights(kubeconfig: Path, eve: str) -> None:
    client = by_token(kubeconfig)
    for path in PAGES:
        assert client.get(path).status_code == 401, path
    log_in(client, eve)
    for path in PAGES:
        text = client.get(path).text
        for secret in ("support-bot<", "broken", "nightly", "secret-job", "vault"):
            assert secret not in text, path


def unsigned(**claims: Any) -> str:
    parts = [{"alg": "none"}, claims]
    return ".".join([base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts] + ["x"])


@pytest.mark.usefixtures("fleet")
def test_a_token_that_is_none_or_has_expired_is_a_401_with_a_way_in(kubeconfig: Path, ada: str, caplog: pytest.LogCaptureFixture) -> None:
    client = by_token(kubeconfig)
    with caplog.at_level(logging.DEBUG):
        assert log_in(client, "no-token-at-all").status_code == 401
        expired = log_in(client, unsigned(exp=int(time.time()) - 1))
        assert expired.status_code == 401
        assert "has expired" in expired.text
        assert log_in(client, unsigned(exp=int(time.time()) + 900)).status_code == 401
        assert log_in(client, "x" * 20_000).status_code == 400
        bearer = client.get("/jobs", headers={"Authorization": f"Bearer {unsigned(exp=1)}"})
        assert bearer.status_code == 401
        assert 'name="bearer"' in bearer.text
        assert client.get("/jobs", headers={"Authorization": f"Bearer {ada}"}).status_code == 200
        log_in(client, ada)
        assert client.get("/jobs").status_code == 200
    assert ada not in caplog.text
    short = by_token(kubeconfig, hours=1 / 3600)
    log_in(short, ada)
    for _ in range(400):
        if (answer := short.get("/jobs")).status_code == 401:
            break
        time.sleep(0.05)
    assert answer.status_code == 401


def test_other_hosts_and_other_sites_are_refused(fleet: Hub, kubeconfig: Path, ada: str) -> None:
    client = by_token(kubeconfig)
    log_in(client, ada)
    assert client.get("/jobs", headers={"Host": "evil.example.com"}).status_code == 403
    asked = client.get("/jobs/support-bot/cancel").text
    form = {"token": form_token(asked), "namespace": "default"}
    assert client.post("/jobs/support-bot/cancel", data=form, headers={**OWN, "Origin": "https://evil.example.com"}).status_code == 403
    assert client.post("/jobs/support-bot/cancel", data={**form, "token": "0" * 64}, headers=OWN).status_code == 400
    assert not held(fleet)["spec"].get("cancelled")
    assert client.post("/jobs/support-bot/cancel", data=form, headers=OWN).status_code == 303
    assert held(fleet)["spec"]["cancelled"]


def test_a_failed_job_is_retried_under_the_next_name(fleet: Hub, kubeconfig: Path, ada: str) -> None:
    client = by_token(kubeconfig)
    log_in(client, ada)
    form = {"token": form_token(client.get("/jobs/broken/retry").text), "namespace": "default"}
    answer = client.post("/jobs/broken/retry", data=form, headers=OWN)
    assert answer.headers["location"] == "/jobs/broken-2?namespace=default"
    assert held(fleet, "broken-2")["spec"]["tasks"] == held(fleet, "broken")["spec"]["tasks"]
    assert held(fleet, "broken-2")["metadata"]["annotations"]["tuneyard.dev/user"] == "system:serviceaccount:default:ada"
    assert client.post("/jobs/support-bot/retry", data=form, headers=OWN).status_code == 400


def test_a_schedule_shows_runs_and_waits_and_is_paused_resumed_and_run(fleet: Hub, kubeconfig: Path, ada: str) -> None:
    client = by_token(kubeconfig)
    log_in(client, ada)
    assert "regressed" in client.get("/schedules").text
    page = client.get("/schedules/nightly").text
    for shown in ("s3://rows/26", "2031-11-27", "exact_match", "&lt;img src=x", "Europe/Berlin", "Figures over runs"):
        assert shown in page, shown
    for action, field, value in (("pause", "suspend", True), ("resume", "suspend", False), ("run-now", "runNow", None)):
        form = {"token": form_token(client.get(f"/schedules/nightly/{action}").text), "namespace": "default"}
        assert client.post(f"/schedules/nightly/{action}", data=form, headers=OWN).status_code == 303
        found = fleet.api.get(f"/apis/{API}/namespaces/default/schedules/nightly")["spec"][field]
        assert found == value if value is not None else found
    assert client.get("/schedules/nightly?namespace=vault").status_code == 404


def test_a_search_shows_its_trials(fleet: Hub, kubeconfig: Path, ada: str) -> None:
    spec = {"tune": {"task": "train", "trials": 4}, "resources": {"sku": ["h100-80gb"], "workers": 8}}
    create(fleet, make_manifest("searches", tasks=[*make_manifest()["spec"]["tasks"][:1], {"name": "search", **spec}]))
    trials = [
        {"number": 1, "point": {"zero": 2}, "ratio": 1.21, "tokens_per_s": 5210.0},
        {"number": 2, "point": {"zero": 3}, "failure": "OutOfMemory"},
    ]
    task = {"name": "search", "phase": "Running", "metrics": {"trials": trials}, "progress": {"step": 2, "of": 4}}
    report(fleet, {"phase": "Running", "tasks": [task]}, "searches")
    client = by_token(kubeconfig)
    log_in(client, ada)
    page = client.get("/jobs/searches").text
    for shown in ("zero 2", "1.21", "OutOfMemory"):
        assert shown in page


def test_lists_say_the_same_of_a_table_as_of_whole_objects(fleet: Hub) -> None:
    create(fleet, make_manifest("held", suspend=True, team="maps", priority="high"))
    waiting = {"phase": "Queued", "message": HOSTILE, "expectedStart": "2031-01-01T00:00:00Z", "observedGeneration": 1}
    report(fleet, waiting, "held")
    create(fleet, make_manifest("cancelling", cancelled=True))
    report(fleet, make_running() | {"usage": {"gpuHours": 2.5, "cost": 1.0}, "finishedAt": None}, "cancelling")
    fleet.api.patch(f"{JOBS.format('default')}/broken/status", {"status": {"finishedAt": "2026-11-26T10:00:00Z"}})
    hub = open_hub(kubeconfig=fleet.kubeconfig)
    listed, partial = hub.listed()
    assert (rows_of(listed), partial) == (rows_of(map(facts_of, hub.snapshot().jobs)), "")
    assert {row.name for row in rows_of(listed) if row.holds} == {"support-bot", "cancelling"}, "attempts of others are cleaned up"
    assert {row.name: row.state for row in rows_of(listed)} == {
        "held": "Suspended",
        "cancelling": "Cancelling",
        "broken": "Failed",
        "support-bot": "Running",
        "secret-job": "Pending",
    }


@pytest.mark.usefixtures("fleet")
def test_the_overview_counts_gpus_without_waiting_for_whole_jobspecs(kubeconfig: Path, ada: str) -> None:
    client = by_token(kubeconfig)
    log_in(client, ada)
    asks = 'hx-get="/overview/gpus"'
    assert asks in client.get("/").text
    assert re.search(r"GPUs in use</dt><dd>\d+<", client.get("/overview/gpus").text)
    overview = client.get("/").text
    assert asks not in overview, "what is at hand is shown at once"
    assert re.search(r"GPUs in use</dt><dd>\d+<", overview)


# --- behind a proxy


def test_a_reader_behind_a_proxy_is_impersonated_with_their_groups(fleet: Hub, kubeconfig: Path) -> None:
    client = by_proxy(kubeconfig)
    bind(fleet, {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ml-team"}, "console-tests", ["default"])
    bind(fleet, {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "grace@example.com"}, "console-tests", ["maps"])
    sent = {"X-Tuneyard-Proxy": SECRET, "X-User": "grace@example.com"}
    create(fleet, make_manifest("route-bot", "maps"), "maps")
    alone = client.get("/jobs", headers=sent).text
    assert "route-bot" in alone
    assert "support-bot" not in alone
    team = client.get("/jobs", headers={**sent, "X-Groups": "others, ml-team,system:masters"}).text
    assert "route-bot" in team
    assert "support-bot" in team
    assert "secret-job" not in team


@pytest.mark.usefixtures("fleet")
def test_a_forged_header_opens_nothing(kubeconfig: Path) -> None:
    client = by_proxy(kubeconfig)
    user, secret = ("X-User", "grace@example.com"), ("X-Tuneyard-Proxy", SECRET)
    for headers, status in (
        ([user], 403),
        ([user, ("X-Tuneyard-Proxy", "guess")], 403),
        ([user, secret, secret], 403),
        ([user, ("X-User", "admin"), secret], 403),
        ([secret], 401),
        ([("X-User", "system:admin"), secret], 403),
        ([("X-User", "SYSTEM:kube-controller-manager"), secret], 403),
    ):
        for path in ("/", "/jobs", "/jobs/support-bot"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == status, (headers, path)
            assert "support-bot<" not in answer.text
    far = by_proxy(kubeconfig, secret="", networks=networks_of(["10.9.0.0/16"]))
    assert far.get("/jobs", headers=[user]).status_code == 403


@pytest.mark.usefixtures("kubeconfig")
def test_the_account_itself_can_impersonate_no_group_that_is_not_listed(fleet: Hub) -> None:
    account = f"system:serviceaccount:{SYSTEM}:tuneyard-hub-console"
    for group, yes in (("ml-team", "yes"), ("system:masters", "no"), ("others", "no")):
        words = ("auth", "can-i", "impersonate", f"groups/{group}", f"--as={account}", "-q")
        may = "yes"
        try:
            fleet.kubectl(*words)
        except RuntimeError:
            may = "no"
        assert may == yes, group


# --- any request


@pytest.mark.parametrize("mode", ["token", "proxy"])
@pytest.mark.parametrize("known", [True, False])
def test_no_request_however_written_fails_or_shows_what_is_hidden(fleet: Hub, kubeconfig: Path, ada: str, mode: str, known: bool) -> None:
    client = by_token(kubeconfig) if mode == "token" else by_proxy(kubeconfig)
    bind(fleet, {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "grace"}, "console-tests", ["default"])
    inside = {"Authorization": f"Bearer {ada}"} if mode == "token" else {"X-Tuneyard-Proxy": SECRET, "X-User": "grace"}
    schema = schemathesis.openapi.from_dict(client.app.openapi())  # type: ignore[attr-defined]
    seen: list[int] = []

    def ask(case: Any) -> None:
        values = case.as_transport_kwargs(base_url=ADDRESS)
        own = {str(key): str(value) for key, value in (values.get("headers") or {}).items() if str(value).isascii()}
        try:
            url = testclient.httpx.URL(values["url"], params=values.get("params") or {})
        except testclient.httpx.InvalidURL:
            return
        answer = client.request(values["method"], url, headers={**own, **OWN, **(inside if known else {})})
        seen.append(answer.status_code)
        away = "/logs" in case.path or "/history" in case.path or case.path == "/compare"  # this hub serves neither logs nor history
        assert answer.status_code < 500 or away, answer.text
        assert "bug in Tuneyard" not in answer.text
        assert "secret-job<" not in answer.text
        if not known:
            assert "support-bot<" not in answer.text

    for result in schema.get_all_operations():
        operation = result.ok()

        asked = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        asked(given(case=operation.as_strategy())(ask))()
    assert len(seen) > 40


# --- a process


def test_pages_in_a_browser_streams_and_metrics(fleet: Hub, kubeconfig: Path, ada: str, tmp_path: Path) -> None:
    with hosted_console(tmp_path, kubeconfig) as (address, metrics), browser(tmp_path) as tab:
        tab.look(f"{address}/schedules/nightly", pictured=False)
        assert violations(tab) == []
        tab.ask(f"document.querySelector('#bearer').value = {json.dumps(ada)}")
        tab.ask("document.querySelector('.login button').click()")
        tab.wait_for("document.body.innerText.includes('Waits for data')", limit_s=20)
        for path in ("/", "/schedules", "/schedules/nightly", "/schedules/nightly/pause", "/jobs/broken/retry", "/jobs/support-bot"):
            for width, dark in ((1280, False), (1280, True), (360, False)):
                seen = tab.look(f"{address}{path}", width=width, dark=dark, settle_s=0.05, pictured=False)
                assert (seen.errors, seen.width <= width) == ([], True), path
                assert [url for url in seen.requests if not url.startswith((address, "data:"))] == [], path
            assert violations(tab) == [], path
        assert tab.ask("document.querySelectorAll('img[src=x]').length") == 0
        text = requests.get(f"{metrics}/metrics").text
        assert 'tuneyard_console_requests_total{code="200",page="/schedules/{name}"}' in text
        assert "support-bot" not in text
        assert requests.get(f"{metrics}/readyz").status_code == requests.get(f"{metrics}/healthz").status_code == 200
        accounts = [make_account(fleet, f"watcher-{n}", role=READER, namespaces=["default"]) for n in range(5)]
        assert open_streams(address, metrics, accounts, SHARE) >= 5 * SHARE


def open_streams(address: str, metrics: str, tokens: list[str], count: int) -> float:
    """Streams that the console counts while this process holds `count` open for each token; a page is answered beside them."""
    live = f"{address}/jobs/support-bot/live"
    of = [{"Authorization": f"Bearer {token}"} for token in tokens]
    headers = of[0]
    opened = [requests.get(live, headers=each, stream=True, timeout=60) for each in of for _ in range(count)]
    try:
        assert {each.status_code for each in opened} == {200}
        assert requests.get(live, headers=headers, timeout=60).status_code == 429
        lines = [each.iter_lines(chunk_size=1) for each in opened]
        assert all(any(line == b"event: page" for line in each) for each in lines)
        assert requests.get(f"{address}/jobs", headers=headers, timeout=60).status_code == 200
        found = re.search(r"^tuneyard_console_streams (\S+)", requests.get(f"{metrics}/metrics").text, re.MULTILINE)
    finally:
        for each in opened:
            each.close()
    assert found
    return float(found[1])


@pytest.mark.usefixtures("fleet")
def test_metrics_count_pages_and_codes(kubeconfig: Path) -> None:
    metrics = ConsoleMetrics()
    client = by_token(kubeconfig, metrics)
    client.get("/jobs/support-bot")
    assert metrics.registry.get_sample_value("tuneyard_console_requests_total", {"page": "/jobs/{name}", "code": "401"}) == 1
