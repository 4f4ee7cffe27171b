"""The console's own queries on both databases: the same pages, and paging that neither repeats nor omits a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.servers.consoles import failed_job, finished_job, many_jobs, url_of

from tuneyard.console import create_app
from tuneyard.console.local import LocalHistory, queries
from tuneyard.tracking.history import History
from tuneyard.tracking.past import JobFilter


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(tmp_path) if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


def test_pages_are_the_same_on_both_databases(url: str, tmp_path: Path) -> None:
    finished_job(url, tmp_path / "runs" / "first")
    finished_job(url, tmp_path / "runs" / "second", team="maps")
    failed_job(url, tmp_path / "runs" / "bad")
    source = LocalHistory.open(url)
    client = TestClient(create_app(source), base_url="http://127.0.0.1:7420")
    overview = client.get("/").text
    assert "rank 3 lost its GPU at step 61" in overview
    assert "1 failed, 2 succeeded" in overview
    job = client.get("/jobs/support-bot").text
    assert "Memory per rank, planned and measured" in job
    assert "2 runs" in client.get("/jobs?q=SUPPORT").text
    for odd in ("%", "\0", "'", "\\", "x" * 300):
        assert client.get("/jobs", params={"q": odd, "team": odd, "status": odd}).status_code == 200
        assert client.get("/jobs/x", params={"run": odd}).status_code == 404
    source.close()


def test_paging_shows_each_run_once_also_with_equal_starts(url: str) -> None:
    many_jobs(url, 130)
    history = History.open(url)
    seen: list[str] = []
    after = ""
    while True:
        page = history.page(JobFilter(), 20, after)
        seen += [job.id for job in page.jobs]
        after = page.after
        if not after:
            break
    assert len(seen) == len(set(seen)) == 130
    assert history.count(JobFilter(status="failed")) == 8
    now = datetime.now(UTC)
    assert sum(sum(counts.values()) for _, counts in queries.ended_by_day(history, now, 14)) == 130
    (row,) = history.usage(now - timedelta(days=30), now)
    assert (row["team"], row["sku"], round(row["gpu_hours"], 1)) == ("maps", "h100-80gb", 693.3)
    failed = history.last_ended(JobFilter(status="failed", ended_since=now - timedelta(days=2)), 10)
    assert [(job.failure, dict(job.tasks), job.attempts) for job in failed] == [("OutOfMemory", {"train": "train"}, 1)] * 3
    assert history.count(JobFilter(text="OB-7")) == 11  # 7, 70 to 79
    history.close()
