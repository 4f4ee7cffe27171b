"""The console of the chart in its pod, in a browser, over jobs that run in pods: all pages of a hub, while a job runs and at its end."""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.home import OURS
from tests.clusters.console_pods import (
    STEPS,
    TEAM,
    log_in,
    pod_address,
    reader_of,
    schedule,
    searching,
    status_of,
    told,
    training,
    wait_for_end,
    waiting,
    with_console,
)
from tests.clusters.hosted_consoles import NAME
from tests.servers.chromium import Tab, browser, violations
from tests.testcluster import Member
from tests.testcluster.install import JOBS
from tests.testcluster.waiting import wait_for

VIEWS = ((1280, False), (1280, True), (360, False))
LISTS = {each: f"/{each}" for each in ("", "queue", "jobs", "schedules", "history", "clusters", "teams")}
HERE = "namespace=default"
JOB = {"job": f"/jobs/bookings?{HERE}", "logs": f"/jobs/bookings/logs?{HERE}", "cancel": f"/jobs/bookings/cancel?{HERE}"}

PICTURES = "TUNEYARD_TEST_PICTURES"
"""Variable with the folder to which the test writes the pictures of docs/; `make pictures` sets it."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def hub(home: Member) -> Iterator[Member]:
    with with_console(home):
        yield home
        home.kubectl("delete", "schedules,jobspecs", "--all", "-n", "default", "--timeout=240s")
        home.kubectl("delete", "team", "default", "--ignore-not-found")


@pytest.fixture(scope="module")
def address() -> str:
    return f"http://{NAME}:8080"


@pytest.fixture(scope="module")
def tab(hub: Member, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser"), hosts={NAME: pod_address(hub)}, trusted=address) as made:
        log_in(made, address, reader_of(hub))
        yield made


def check(tab: Tab, address: str, pages: dict[str, str]) -> None:
    """Each page, light, dark and on a phone: no other host, no error, nothing wider than the window, no serious finding of axe."""
    for name, path in pages.items():
        for width, dark in VIEWS:
            seen = tab.look(f"{address}{path}", width=width, dark=dark, settle_s=0.2, pictured=False)
            assert seen.errors == [], name
            assert [url for url in seen.requests if not url.startswith((address, "data:"))] == [], name
            assert seen.width <= width, name
            assert violations(tab) == [], (name, width, dark)


def keep_picture(tab: Tab, url: str, name: str, *, width: int = 1100, dark: bool = False) -> None:
    """Write the visible part of a page to a picture of docs/, where these are asked for."""
    if folder := os.environ.get(PICTURES):
        tab.look(url, width=width, dark=dark, pictured=False)
        tab.wait_for("![...document.querySelectorAll('dd')].some(each => each.innerText === '…')", limit_s=60)
        (Path(folder) / name).write_bytes(tab.picture(whole=False))


@dataclass
class Reported:
    """Steps of the task `base` as its attempt reports them to the member, with the moment at which a watcher saw each."""

    hub: Member
    steps: dict[int, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.ended.is_set():
            for item in self.hub.api.get(f"{OURS}/namespaces/{JOBS}/attemptreports")["items"]:
                step = ((item.get("status") or {}).get("progress") or {}).get("step", 0)
                if "base" in item["metadata"]["name"] and "bookings" in item["metadata"]["name"] and step:
                    self.steps.setdefault(step, time.monotonic())
            time.sleep(0.05)


def shown_step(tab: Tab) -> int:
    text = tab.ask("(document.querySelector('#live') || document.body).innerText") or ""
    found = re.findall(rf"step (\d+)/{STEPS}", text)
    return max(map(int, found), default=0)


def follow(hub: Member, tab: Tab) -> list[float]:
    """Seconds from a reported step to a page that shows it or a later one, for each report until the last step."""
    reported = Reported(hub)
    watcher = threading.Thread(target=reported.watch)
    watcher.start()
    shown: list[tuple[float, int]] = []
    try:
        until = time.monotonic() + 600
        while time.monotonic() < until and (not shown or shown[-1][1] < STEPS - 15):
            step = shown_step(tab)
            if step and (not shown or step > shown[-1][1]):
                shown.append((time.monotonic(), step))
            tab.rest(0.05)
    finally:
        reported.ended.set()
        watcher.join()
    waits = []
    for step, moment in reported.steps.items():
        later = next((seen for seen, number in shown if number >= step), None)
        if later is not None:
            waits.append(max(0.0, later - moment))
    return waits


def test_all_pages_of_a_hub_while_a_job_runs_and_at_its_end(hub: Member, address: str, tab: Tab) -> None:
    hub.apply(TEAM, training("bookings", scored=True), schedule("nightly"))

    def runs() -> bool:
        tasks = {task["name"]: task for task in status_of(hub, "bookings").get("tasks") or []}
        return bool((tasks.get("base") or {}).get("phase") == "Running")

    wait_for("training", runs, limit_s=900, every_s=0.5, words=lambda: told(hub, "bookings"))
    tab.look(f"{address}{JOB['job']}", pictured=False)
    waits = follow(hub, tab)
    assert len(waits) >= 3
    print(f"a page showed a reported step after {statistics.median(waits):.1f} s (median of {len(waits)}), {max(waits):.1f} s at most")
    hub.apply(waiting("wide"), training("slower", rate=1e-3))
    wait_for("a job that waits", lambda: status_of(hub, "wide").get("phase"), limit_s=120, words=lambda: told(hub, "wide"))
    keep_picture(tab, f"{address}/queue", "console-hub-queue.png", dark=True)
    keep_picture(tab, f"{address}/", "console-hub-phone.png", width=360)
    check(tab, address, {**LISTS, **JOB, "waiting": f"/jobs/wide?{HERE}", "schedule": f"/schedules/nightly?{HERE}"})
    hub.kubectl("delete", "jobspec", "wide", "-n", "default", "--timeout=240s")
    for name in ("bookings", "slower"):
        wait_for_end(hub, name)
    keep_picture(tab, f"{address}{JOB['job']}", "console-hub-job.png")
    check(tab, address, {**LISTS, **JOB, "schedule": f"/schedules/nightly?{HERE}"})
    assert "exact match" in tab.look(f"{address}{JOB['job']}", pictured=False).text.lower()
    check(tab, address, on_record(tab, address))


def on_record(tab: Tab, address: str) -> dict[str, str]:
    """The pages of one job on record and of a comparison."""

    def runs() -> Any:
        tab.look(f"{address}/history", pictured=False, settle_s=0.1)
        rows = "[...document.querySelectorAll('tr')].filter(row => /(bookings|slower)[^]*succeeded/i.test(row.innerText))"
        found = re.findall(r'"([^"]+)"', tab.ask(f"JSON.stringify({rows}.map(row => row.querySelector('[name=run]').value))"))
        return found if len(found) == 2 else None

    runs_found = wait_for("both jobs on record", runs, limit_s=120, every_s=1)
    namespace, _, key = runs_found[0].partition("/")
    return {
        "past": f"/history/{key}?namespace={namespace}",
        "compare": f"/compare?run={runs_found[0]}&run={runs_found[1]}",
    }


def test_a_search_shows_its_trials_while_it_runs(hub: Member, address: str, tab: Tab) -> None:
    hub.apply(searching("fastest"))

    def trials() -> int:
        tasks = {task["name"]: task for task in status_of(hub, "fastest").get("tasks") or []}
        search = tasks.get("search") or {}
        return len((search.get("metrics") or {}).get("trials") or []) if search.get("phase") == "Running" else 0

    wait_for("a trial of a running search", trials, limit_s=900, every_s=0.5, words=lambda: told(hub, "fastest"))
    page = tab.look(f"{address}/jobs/fastest?{HERE}", pictured=False)
    assert "batch.micro" in page.text
    check(tab, address, {"search": f"/jobs/fastest?{HERE}"})
    wait_for_end(hub, "fastest")
    check(tab, address, {"search": f"/jobs/fastest?{HERE}"})
