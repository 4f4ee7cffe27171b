"""`tuneyard report` shows what a job left behind."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.servers.consoles import finished_job, url_of

from tuneyard.cli import main
from tuneyard.cli.summary import print_summary
from tuneyard.console import create_app
from tuneyard.console.local import LocalHistory
from tuneyard.tracking import Report, bottleneck_of

REPORT = {
    "job": "small",
    "status": "Succeeded",
    "tasks": {
        "train": {
            "status": "Succeeded",
            "losses": [3.0, 1.5],
            "steps": 2,
            "tokens_per_s": 1234.5,
            "mfu": 0.31,
            "peak_memory_gb": [1.0, 2.0],
        },
        "judge": {
            "status": "Succeeded",
            "rows": 40,
            "errors": 0,
            "metrics": {"exact_match": 0.25, "gone": 2},
            "intervals": {"exact_match": [0.1419, 0.4019]},
        },
    },
}


def test_the_figures_of_each_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    assert main(["report", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small: Succeeded"
    heads = ["task", "status", "steps", "last loss", "tokens per s", "mfu", "peak memory gb", "rows", "errors"]
    assert re.split(" {2,}", lines[1]) == heads
    assert lines[2].split() == ["train", "Succeeded", "2", "1.5", "1,234", "31.0%", "2", "-", "-"]
    assert "judge: exact_match 0.25 (95 %: 0.1419 to 0.4019)" in lines
    assert "judge: gone 2" in lines, "reports outlive metrics"


def test_why_a_run_on_streamed_data_was_slow_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bottleneck = asdict(bottleneck_of({"data": 3.0, "forward": 7.0}, {"seconds": {"tokenising": 9.0, "storage": 1.0}}))
    train = REPORT["tasks"]["train"] | {"details": {"bottleneck": bottleneck}}  # type: ignore[index]
    (tmp_path / "report.json").write_text(json.dumps(REPORT | {"tasks": {"train": train}}))
    assert main(["report", str(tmp_path)]) == 0
    sentence = "steps waited for rows 30.0% of the time, most of all for tokenising: 90% of making rows; add data workers"
    assert f"train: {sentence}" in capsys.readouterr().out.splitlines()


def test_rows_of_rankers_and_programs_have_their_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranker = REPORT["tasks"]["train"] | {"kind": "rank", "tokens_per_s": 0, "details": {"rows_per_s": 10_117.4}}  # type: ignore[index]
    (tmp_path / "report.json").write_text(json.dumps(REPORT | {"tasks": {"ranker": ranker}}))
    assert main(["report", str(tmp_path)]) == 0
    head, row = capsys.readouterr().out.splitlines()[1:3]
    assert "rows per s" in head
    assert "tokens per s" not in head
    assert "10,117" in row


def test_a_figure_has_the_same_words_in_every_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the run, in `tuneyard report`, on the report's page and in the console: 20,900 tokens/s and an MFU of 0.418 were measured."""
    finished_job(url_of(tmp_path), tmp_path / "out")
    assert main(["report", str(tmp_path / "out")]) == 0
    views = {"report": capsys.readouterr().out, "page": (tmp_path / "out" / "report.html").read_text()}
    print_summary(Report.from_json((tmp_path / "out" / "report.json").read_bytes()))
    views["summary"] = capsys.readouterr().out
    source = LocalHistory.open(url_of(tmp_path))
    try:
        views["console"] = TestClient(create_app(source), base_url="http://127.0.0.1:7420").get("/jobs/support-bot").text
    finally:
        source.close()
    for name, text in views.items():
        assert all(re.search(rf"(?<![\d,.]){re.escape(figure)}(?![\d.])", text) for figure in ("20,900", "41.8%", "4,180")), name


def test_json_is_the_report_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    assert main(["report", str(tmp_path / "report.json"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


@pytest.mark.parametrize(("content", "cause"), [(None, "holds no report.json"), ("{", "is damaged"), ("[]", "is not a report of Tuneyard")])
def test_a_folder_without_a_report(content: str | None, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    assert cause in capsys.readouterr().err


def test_an_empty_history_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path / 'history.db'}")
    assert main(["history", "list"]) == 0
    assert "no jobs yet" in capsys.readouterr().out
    assert main(["history", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
