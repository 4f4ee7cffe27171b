"""Pages over a real history, in this process."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.servers.consoles import HOSTILE

from tuneyard.console import create_app
from tuneyard.console.local import LocalHistory

from .conftest import ADDRESS

PATHS = ("/", "/jobs", "/jobs/{}", "/jobs/{}/logs", "/jobs/{}/live", "/compare", "/score", "/static/{}", "/theme", "/{}")
PARAMETERS = ("q", "status", "team", "imported", "after", "run", "log", "at", "find", "side", "start")
TEXTS = st.one_of(
    st.sampled_from(
        ["support-bot", "nightly-eval", "killed-job", "train-rank-0", "1", "-1", "9" * 30, HOSTILE, "a/b", "..", "\0", "%", "_"]
    ),
    st.sampled_from(
        ["2026-11-26T08:00:00+00:00~a", "0001-01-01T00:00:00+00:00~a", "9999-12-31T23:59:59+23:59~a", "~", "support-bot/judge"]
    ),
    st.text(max_size=20),
)


def runs_of(client: TestClient, name: str) -> list[str]:
    found = re.findall(rf"/jobs/{name}\?run=([0-9a-f]{{32}})", client.get("/jobs").text)
    return list(dict.fromkeys(found))


def test_the_overview_shows_what_failed_today_and_what_was_killed(client: TestClient) -> None:
    text = client.get("/").text
    assert "rank 3 lost its GPU at step 61" in text
    killed = text[text.index("<h2>Killed</h2>") : text.index("<h2>Running</h2>")]
    assert "killed-job" in killed


def test_a_list_is_searched_and_filtered(client: TestClient) -> None:
    assert "3 runs" not in client.get("/jobs?q=SUPPORT").text
    found = client.get("/jobs?q=SUPPORT&team=maps").text
    assert "1 run<" in found
    assert "nightly-eval" not in found
    assert "No run matches" in client.get("/jobs?q=%25").text
    assert "1 run<" in client.get("/jobs?status=failed").text
    run = runs_of(client, "support-bot")[0]
    assert "1 run<" in client.get(f"/jobs?q={run[:12].upper()}").text


def test_a_job_page_shows_attempts_curves_memory_and_outputs(client: TestClient) -> None:
    text = client.get("/jobs/support-bot").text
    for shown in (
        "OutOfMemory: a rank took more than 80 GB",
        "Loss",
        "Tokens/s",
        "MFU, %",
        "Memory per rank, planned and measured",
        "0.447",
    ):
        assert shown in text
    assert 'aria-label="Tasks: base (succeeded), train (succeeded), judge (succeeded)"' in text
    assert "holdout.jsonl" in text


def test_a_job_page_shows_its_models_compared_row_by_row(client: TestClient) -> None:
    text = client.get("/jobs/support-bot").text
    section = text[text.index("<h2><span>Model against model</span></h2>") :].partition("</section>")[0]
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", section)]
    assert cells[5:] == [
        *("judge against base", "exact match", "+0.235", "+0.100 to +0.370", "better"),
        *("judge against base", "perplexity", "−0.0800", "−0.200 to +0.0400", "no real difference"),
    ]
    assert "44 of 45 rows of both; left out: 1 with an error in both" in section
    links = [html.unescape(each) for each in re.findall(r'href="([^"]+)"', section)]
    for link, row in zip(links, (41, 0), strict=False):
        assert f'id="row-{row}"' in client.get(link).text, link
        assert link.endswith(f"#row-{row}")
    assert "base beside judge" in re.sub(r"<[^>]+>", "", client.get(links[-1]).text)
    assert "Model against model" not in client.get("/jobs/nightly-eval").text


def test_samples_of_a_judge_show_the_answers_that_it_judged(client: TestClient) -> None:
    text = client.get("/jobs/support-bot").text
    for heading, answer in (("the answer that is judged", "Look at the account page."), ("the other answer", "Write to the support.")):
        assert f'<h3>{heading}</h3><pre dir="auto">{answer}</pre>' in text


def test_the_newest_run_of_a_name_is_shown_and_the_others_are_named(client: TestClient) -> None:
    newest, oldest = runs_of(client, "support-bot")
    text = client.get("/jobs/support-bot").text
    assert newest[:8] in text
    assert f"run={oldest}" in text
    assert oldest[:8] in client.get(f"/jobs/support-bot?run={oldest}").text


def test_a_killed_run_says_how_to_go_on(client: TestClient) -> None:
    assert "--resume" in client.get("/jobs/killed-job").text


@pytest.mark.parametrize(
    "path", ["/jobs/nope", "/jobs/nope/logs", "/jobs/nope/live", "/jobs/support-bot?run=nope", "/score?side=nope/x", "/x/y"]
)
def test_what_does_not_exist_is_a_page_with_the_next_step(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "<b>Next:</b>" in answer.text


def test_a_run_is_not_shown_under_the_name_of_another_job(client: TestClient) -> None:
    run = runs_of(client, "support-bot")[0]
    assert client.get(f"/jobs/nightly-eval?run={run}").status_code == 404


def test_two_runs_are_compared_by_what_differs(client: TestClient) -> None:
    runs = runs_of(client, "support-bot")
    text = client.get(f"/compare?run={runs[0]}&run={runs[1]}").text
    differing = text[text.index("Settings that differ") : text.index("<h2>Figures</h2>")]
    assert "team" in differing
    assert "holdout.jsonl" not in differing
    assert "not set" in differing


@pytest.mark.parametrize("query", ["", "run=support-bot", "run=support-bot&run=support-bot", "&".join(f"run={n}" for n in range(7))])
def test_a_comparison_of_too_few_or_too_many_is_refused(client: TestClient, query: str) -> None:
    answer = client.get(f"/compare?{query}")
    assert answer.status_code == 400
    assert "<b>Next:</b>" in answer.text


def test_rows_of_two_score_tasks_stand_side_by_side_with_their_words_compared(client: TestClient) -> None:
    run = runs_of(client, "support-bot")[0]
    text = client.get(f"/score?side={run}/base&side={run}/judge&start=20").text
    assert "21 to 40 of 45 rows" in text
    assert "Question 20" in text
    assert "<ins>Settings" in text
    assert "<del>" in text
    assert "Question 41" in client.get(f"/score?side={run}/base&start=40").text


def test_parts_of_other_forms_and_broken_ones_are_no_bug(client: TestClient, history_folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    oldest = runs_of(client, "support-bot")[-1]
    part = history_folder / "runs" / "first" / "base" / "parts" / "part-00001.parquet"
    good = part.read_bytes()
    try:
        pq.write_table(pa.table({"probability_clicked": [0.5] * 15}), part)
        assert "row 31" in client.get(f"/score?side={oldest}/base&start=20").text
        part.write_bytes(good[:100])
        assert client.get(f"/score?side={oldest}/base").status_code == 503
    finally:
        part.write_bytes(good)


def test_metrics_of_a_score_task_are_drawn_over_the_runs_of_its_job(client: TestClient) -> None:
    run = runs_of(client, "support-bot")[0]
    text = client.get(f"/score?side={run}/judge").text
    assert "Metrics over the runs of this job" in text
    assert "ROUGE-L, higher is better" in text
    assert "perplexity, lower is better" in text
    assert "run 2 · ROUGE-L 0.521" in text


def test_a_log_is_searched_and_its_controls_are_visible(client: TestClient) -> None:
    shown = client.get("/jobs/support-bot/logs?log=train-rank-0").text
    assert "step 2999" in shown
    assert "\\u202egnp.exe" in shown
    assert "<img src=x" not in shown
    assert "\u202e" not in shown
    found = client.get("/jobs/support-bot/logs?log=train-rank-0&find=STEP 17 &at=0").text
    assert "<mark>step 17 </mark>" in found


@pytest.mark.parametrize("log", ["../../../etc/passwd", "/etc/passwd", "train-rank-0.log", "..", "\0"])
def test_a_log_is_named_and_never_a_path(client: TestClient, log: str) -> None:
    assert client.get("/jobs/support-bot/logs", params={"log": log}).status_code == 404


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(PATHS), name=TEXTS, values=st.lists(st.tuples(st.sampled_from(PARAMETERS), TEXTS), max_size=4), post=st.booleans()
)
def test_no_request_fails_with_a_bug(source: LocalHistory, path: str, name: str, values: list[tuple[str, str]], post: bool) -> None:
    client = TestClient(create_app(source), base_url=ADDRESS, raise_server_exceptions=False, follow_redirects=False)
    target = f"{path.format(quote(name, safe=''))}?{urlencode(values, errors='replace')}"
    if "/live" in target and client.get(target.replace("/live", "")).status_code == 200:
        return  # a stream stays open: tests/browser has it
    answer = client.post(target, content=name.encode("utf-8", "replace"), headers={"Origin": ADDRESS}) if post else client.get(target)
    assert answer.status_code < 500, answer.text
    assert "\u202e" not in answer.text


def test_a_report_that_cannot_be_read_takes_nothing_else_from_the_page(client: TestClient, history_folder: Path) -> None:
    report = history_folder / "runs" / "bad" / "report.json"
    good = report.read_text()
    try:
        for bad in (
            "",
            "[]",
            "{",
            '{"job": 1, "status": 2, "tasks": [], "started_at": 3}',
            good.replace('"losses": [', '"losses": ["x",'),
            "[" * 90_000,
        ):
            report.write_text(bad)
            answer = client.get("/jobs/nightly-eval")
            assert answer.status_code == 200, bad[:40]
            assert "rank 3 lost its GPU" in answer.text
    finally:
        report.write_text(good)
