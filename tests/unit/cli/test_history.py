"""`tuneyard history` on the history of one machine, and usage with that of a hub."""

from __future__ import annotations

import csv
import fcntl
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.servers.consoles import begun_job, url_of
from tests.unit.operators.test_history_rows import attempt, jobspec, status

from tuneyard.api import BadInput, Phase
from tuneyard.api.status import AttemptSummary
from tuneyard.cli import main
from tuneyard.cli.history.comparison import compared
from tuneyard.cli.history.source import since_of
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.cluster.usage import Used, with_past
from tuneyard.tracking import History
from tuneyard.tracking.hub_rows import JobRows
from tuneyard.tracking.past import months
from tuneyard_operators.history.rows import rows_of

NOW = datetime(2026, 11, 26, tzinfo=UTC)

MEMORY = {"weights_gb": 13.5, "activations_gb": 7.75, "other_gb": 0.05, "total_gb": 21.3}
PLAN = {"zero": 2, "micro_batch": 4, "grad_accum": 8, "memory": MEMORY, "speed": {"terms": {"matmul_s": 1.25}}}


def rows(name: str, number: int = 0, *, score: float = 0.25, data: str = "holdout.jsonl", **metadata: Any) -> JobRows:
    item = jobspec(name=name, uid=f"{name}-{number}", **metadata)
    judge = {"name": "train", "score": {"data": {"source": data}, "metrics": ["rouge_l"]}}
    item["spec"] = {"team": "maps", "tasks": [judge]}
    told = {"plan": PLAN, "summary": AttemptSummary(steps=300, step_s=1.5, tokens_per_s=40_597.0, mfu=0.412, memory_gb=20.93)}
    now = status(attempt(1, 0, 60, **told), phase=Phase.SUCCEEDED, finished_at="2025-12-01T00:01:00Z")
    now.tasks[0].metrics = {"rouge_l": score, "tokens": 40_597.0}
    return rows_of(item, now, "hub-1")


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    url = f"sqlite:///{tmp_path}/history.db"
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", url)
    found = History.open(url)
    hostile = "\x1b[31mred\u202e"
    broken = rows("broken")
    broken = replace(broken, job={**broken.job, "message": hostile, "status": "failed", "submitted_by": "=cmd"})
    found.record([rows("one"), rows("two", score=0.5, data="other.jsonl"), broken], NOW)
    return found


def say(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.usefixtures("history")
def test_a_list_has_filters(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(say(capsys, "history", "list", "-o", "json")[1])
    assert {job["name"] for job in found} == {"one", "two", "broken"}
    assert [job["name"] for job in json.loads(say(capsys, "history", "list", "--status", "failed", "-o", "json")[1])] == ["broken"]
    assert len(json.loads(say(capsys, "history", "list", "--team", "maps", "--limit", "2", "-o", "json")[1])) == 2
    assert say(capsys, "history", "list", "--since", "1d")[1] == "no job is like that\n"
    assert json.loads(say(capsys, "history", "list", "--imported", "-o", "json")[1]) == []


def test_a_run_whose_process_is_gone_is_called_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the console and `tuneyard report` call it."""
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", url_of(tmp_path))
    for name in ("at-work", "gone"):
        begun_job(url_of(tmp_path), tmp_path / name, name).close("running")
        (tmp_path / name / ".lock").touch()
    with (tmp_path / "at-work" / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        listed = json.loads(say(capsys, "history", "list", "-o", "json")[1])
        by_status = {status: say(capsys, "history", "list", "--status", status)[1] for status in ("running", "killed")}
        reports = {name: say(capsys, "report", str(tmp_path / name))[1].splitlines()[0] for name in ("at-work", "gone")}
    assert {job["name"]: job["status"] for job in listed} == {"at-work": "running", "gone": "killed"}
    assert ("at-work" in by_status["running"], "gone" in by_status["running"]) == (True, False)
    assert ("at-work" in by_status["killed"], "gone" in by_status["killed"]) == (False, True)
    assert reports["at-work"] == "at-work: running"
    assert reports["gone"].startswith("gone: killed: no process works on it any more; go on: tuneyard run FILE --out ")
    page = say(capsys, "history", "show", "gone")[1]
    assert page.splitlines()[0].startswith("gone  killed: no process works on it any more")
    assert " running " not in page


def test_a_list_takes_a_pattern_of_names(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("nightly-29927580", "nightly-29929020", "nightly-29929020-r1a2b", "nightly_x", "nightly%x", "weekly-29927580")
    history.record([rows(name) for name in names], NOW)

    def listed(pattern: str) -> set[str]:
        return {job["name"] for job in json.loads(say(capsys, "history", "list", "--name", pattern, "-o", "json")[1])}

    assert listed("nightly-*") == set(names[:3])
    assert listed("nightly-2992????") == set(names[:2])
    assert listed("*-29927580") == {names[0], names[5]}
    assert listed("nightly-29927580") == {names[0]}
    assert listed("nightly_*") == {"nightly_x"}
    assert listed("nightly%*") == {"nightly%x"}
    assert listed("NIGHTLY-*") == listed("[n]ightly-*") == set(), "in the same case, and without sets of characters"
    assert listed("nightly") == listed("*'; drop table jobs; --*") == set()
    assert listed("%" * 252 + "*") == set()
    code, _, said = say(capsys, "history", "list", "--name", "%" * 30_000 + "*")
    assert (code, "the name has 30,001 characters; names have at most 253" in said) == (2, True)


@pytest.mark.usefixtures("history")
def test_a_page_shows_attempts_and_scores_and_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = say(capsys, "history", "show", "broken")
    assert code == 0
    assert "8 x h100-80gb on east" in out
    assert "rouge_l 0.25" in out
    assert "tokens 40,597" in out
    assert (
        "train 1: ZeRO 2, micro batch 4 x 8; memory 21.3 GB planned (weights 13.5, activations 7.75), 20.9 GB measured; "
        "step 1.25 s planned, 1.50 s measured; 40,597 tokens/s; MFU 41.2%; 300 steps"
    ) in out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.usefixtures("history")
def test_a_name_that_is_not_there_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = say(capsys, "history", "show", "brokn")
    assert (code, "did you mean broken?" in err) == (2, True)
    assert say(capsys, "history", "list", "-n", "maps")[0] == 2


def test_a_comparison_says_what_differs_and_what_does_not_compare(history: History) -> None:
    one, two = (history.detail(found) for name in ("one", "two") if (found := history.find(name)))
    for job in (one, two):
        for moment in ("started_at", "placed_at", "ended_at"):
            job[moment] = job[moment].isoformat()
    found = compared(one, two)
    (score,) = [each for each in found.figures if each.name == "train: rouge_l"]
    assert (score.one, score.other, score.difference) == (0.25, 0.5, 0.25)
    shown = {row["figure"]: (row["A"], row["B"]) for row in found.rows()}
    assert shown["train: rouge_l"] == ("0.2500", "0.5000")
    assert shown["train: tokens"] == ("40,597", "40,597")
    assert shown["train: planned_memory_gb"] == ("21.30", "21.30")
    assert shown["cost"] == ("20", "20")
    assert score.better == "B"
    assert found.notes == ("train: scored on different rows or prompts, so that its metrics do not compare",)
    assert found.differences == ('spec.tasks[0].score.data.source: "holdout.jsonl" -> "other.jsonl"',)
    assert compared(one, one).differences == compared(one, one).notes == ()


@pytest.mark.usefixtures("history")
def test_an_export_is_a_table_or_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    written = say(capsys, "history", "export", "--format", "csv")[1]
    assert "\r" not in written
    assert "u000d" not in written
    table = list(csv.DictReader(io.StringIO(written)))
    assert {(row["job"], row["user"]) for row in table} == {("one", ""), ("two", ""), ("broken", "'=cmd")}
    assert {(row["zero"], row["planned_memory_gb"], row["memory_gb"], row["steps"]) for row in table} == {("2", "21.3", "20.93", "300")}
    lines = [json.loads(line) for line in say(capsys, "history", "export")[1].splitlines()]
    assert [len(job["attempts"]) for job in lines] == [1, 1, 1]


@pytest.mark.parametrize("text", ["yesterday", "7", "2026-13-01", "-1d", "2026-11-01T25:00:00Z", "\0", "9" * 400 + "d"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        since_of(text, NOW)


def test_times_are_durations_or_dates() -> None:
    assert since_of("36h", NOW) == NOW - timedelta(hours=36)
    assert since_of("2026-11-01", NOW) == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "parameters", [[("limit", "0")], [("limit", "²")], [("since", "x")], [("by", "x")], [("a", "b")], [("team", "x" * 300)]]
)
def test_a_query_with_wrong_parameters_is_refused(parameters: list[tuple[str, str]]) -> None:
    with pytest.raises(BadInput):
        HistoryQuery.parse(parameters)


def test_a_query_is_the_same_after_its_way() -> None:
    query = HistoryQuery(team="maps", user="ana", since=NOW, by=("month", "team"))
    assert HistoryQuery.parse(query.parameters().items()) == query


def test_months_share_a_period() -> None:
    parts = list(months(datetime(2025, 11, 30, 23, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)))
    assert [name for name, _, _ in parts] == ["2025-11", "2025-12", "2026-01"]
    assert [begins for _, begins, _ in parts[1:]] == [ends for _, _, ends in parts[:-1]]


def test_usage_counts_a_job_once_by_history_or_by_its_jobspec() -> None:
    present = [Used("maps", "maps/a", "h100", 5.0, 10.0, 8), Used("maps", "maps/new", "h100", 1.0, 2.0, 4)]
    past = [Used("maps", "maps/a", "h100", 6.0, 12.0, 0), Used("maps", "maps/gone", "h100", 3.0, 6.0, 0)]

    assert with_past(present, None) == present
    assert with_past(present, past) == [
        Used("maps", "maps/a", "h100", 6.0, 12.0, 8),
        Used("maps", "maps/gone", "h100", 3.0, 6.0, 0),
        Used("maps", "maps/new", "h100", 1.0, 2.0, 4),
    ]
