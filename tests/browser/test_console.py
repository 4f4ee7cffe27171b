"""The console in a real browser, over a history that the real sink has written."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.reports import train_events
from tests.servers.chromium import Tab, violations
from tests.servers.consoles import HOSTILE, begun_job, console, failed_job, finished_job, many_jobs, url_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("console")
    finished_job(url_of(made), made / "runs" / "first")
    finished_job(url_of(made), made / "runs" / "second", team="maps")
    failed_job(url_of(made), made / "runs" / "bad")
    many_jobs(url_of(made), 120)
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with console(folder) as found:
        yield found


def pages(folder: Path) -> dict[str, str]:
    """Path of each page by name."""
    with sqlite3.connect(folder / "history.db") as history:
        runs = [row[0] for row in history.execute("select id from jobs where name = 'support-bot' order by started_at")]
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": "/jobs/support-bot",
        "failed": "/jobs/nightly-eval",
        "logs": "/jobs/support-bot/logs?log=train-rank-0",
        "compare": f"/compare?run={runs[0]}&run={runs[1]}",
        "score": f"/score?side={runs[0]}/base&side={runs[0]}/judge",
    }


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)], ids=["light", "dark", "phone"])
def test_every_page_fits_asks_no_other_host_and_is_accessible(folder: Path, address: str, tab: Tab, width: int, dark: bool) -> None:
    for name, path in pages(folder).items():
        seen = tab.look(f"{address}{path}", width=width, dark=dark, settle_s=0.1, pictured=False)
        assert seen.errors == [], name
        assert [url for url in seen.requests if not url.startswith((address, "data:"))] == [], name
        assert seen.width <= width, name
        if width > 360 or name == "job":
            assert violations(tab) == [], name


def test_a_page_of_a_running_job_shows_new_steps_within_three_seconds(address: str, folder: Path, tab: Tab) -> None:
    recorder = begun_job(url_of(folder), folder / "runs" / "live", "live-job")
    time.sleep(1.5)
    tab.look(f"{address}/jobs/live-job", pictured=False)
    assert "60" in tab.ask("document.querySelector('#live').innerText")
    later = [event for event in train_events(90, of=120) if getattr(event, "step", 0) > 60]
    for event in later:
        recorder(event)
    took = tab.wait_for("document.querySelector('#task-2').innerText.includes('\\n90\\n')", limit_s=3)
    print(f"a live page showed a step {took:.1f} s after it was recorded")
    recorder.close("stopped", "stopped in task train")
    tab.wait_for("document.body.innerText.includes('stopped in task train')", limit_s=5)
    assert tab.seen.errors == []


def test_keys_find_move_mark_and_open(address: str, tab: Tab) -> None:
    tab.look(f"{address}/jobs", pictured=False)
    tab.press("/")
    assert tab.ask("document.activeElement.id") == "q"
    for letter in "job-11":
        tab.press(letter)
    tab.rest(0.8)
    assert "11 runs" in tab.ask("document.querySelector('#list').innerText")
    assert "q=job-11" in tab.ask("location.search")
    tab.press("ArrowDown", "j", "k", "x", "j", "x")
    assert tab.ask("document.querySelector('[data-compare]').textContent") == "Compare 2"
    assert tab.ask("document.activeElement.textContent") == "job-110"
    tab.press("Enter")
    tab.rest(0.5)
    assert tab.ask("location.pathname") == "/jobs/job-110"


def test_the_first_tab_stop_skips_to_the_content(address: str, tab: Tab) -> None:
    tab.look(f"{address}/", pictured=False)
    tab.press("Tab")
    assert tab.ask("document.activeElement.className") == "skip"
    assert tab.ask("document.activeElement.getBoundingClientRect().left") >= 0
    tab.press("Enter")
    assert tab.ask("document.activeElement.id") == "content"


def test_the_theme_is_switched_and_kept(address: str, tab: Tab) -> None:
    tab.look(f"{address}/jobs?q=bot", pictured=False)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = tab.ask(colour)
    switch = "document.querySelector('.themes button').click()"
    tab.ask(switch)
    tab.wait_for(f"document.body !== null && {colour} != '{light}'", limit_s=60)
    assert tab.ask("location.search") == "?q=bot"
    assert tab.look(f"{address}/", pictured=False).errors == []
    assert tab.ask("document.documentElement.dataset.theme") == "dark"
    for theme in ("light", "auto"):
        tab.ask(switch)
        shown = f"document.readyState == 'complete' && document.documentElement.dataset.theme == '{theme}'"
        tab.wait_for(shown, limit_s=60)


def test_names_that_people_chose_run_nothing_and_turn_nothing(address: str, folder: Path, tab: Tab) -> None:
    with sqlite3.connect(folder / "history.db") as history:
        history.execute("update jobs set name = ?, team = ?, message = ? where name = 'nightly-eval'", (HOSTILE, HOSTILE, HOSTILE))
    try:
        for path in ("/", "/jobs"):
            seen = tab.look(f"{address}{path}", pictured=False)
            assert "<img src=x onerror=alert(1)>\\u202egnp.exe" in seen.text
            assert seen.errors == []
        tab.ask("[...document.querySelectorAll('td.main a')].find(a => a.textContent.includes('img')).click()")
        tab.rest(0.6)
        assert "<img src=x" in tab.ask("document.querySelector('h1').innerText")
        assert tab.ask("document.querySelectorAll('img[src=x]').length") == 0
    finally:
        with sqlite3.connect(folder / "history.db") as history:
            history.execute("update jobs set name = 'nightly-eval', team = 'default' where name = ?", (HOSTILE,))


@pytest.mark.long
def test_ten_thousand_jobs(tmp_path: Path) -> None:
    """Prints the time of each page, as the figure of docs/tried.md."""
    many_jobs(url_of(tmp_path), 10_000)
    with console(tmp_path) as address:
        for path in ("/", "/jobs", "/jobs?q=job-49", "/jobs?status=failed", "/jobs/job-7"):
            times = [_seconds(f"{address}{path}") for _ in range(9)]
            print(f"{path:<24} {1000 * sorted(times)[4]:.0f} ms (median of 9), {1000 * max(times):.0f} ms at most")
        last = "/jobs?after=20260101T000000.000000-0"
        print(f"{'the last page':<24} {1000 * _seconds(f'{address}{last}'):.0f} ms")


def _seconds(address: str) -> float:
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", address]
    status, seconds = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert status == "200"
    return float(seconds)
