"""A console in this process, over a history that the real sink has written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.servers.consoles import begun_job, failed_job, finished_job, url_of

from tuneyard.console import create_app
from tuneyard.console.local import LocalHistory

ADDRESS = "http://127.0.0.1:7420"


@pytest.fixture(scope="session")
def history_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs of `support-bot`, a failed job, and one that seems to run; nothing works on it."""
    folder = tmp_path_factory.mktemp("console")
    finished_job(url_of(folder), folder / "runs" / "first")
    finished_job(url_of(folder), folder / "runs" / "second", team="maps")
    failed_job(url_of(folder), folder / "runs" / "bad")
    killed = begun_job(url_of(folder), folder / "runs" / "killed", "killed-job")
    (folder / "runs" / "killed" / ".lock").touch()
    killed.close("running")
    return folder


@pytest.fixture(scope="session")
def source(history_folder: Path) -> Iterator[LocalHistory]:
    made = LocalHistory.open(url_of(history_folder))
    yield made
    made.close()


@pytest.fixture
def client(source: LocalHistory) -> TestClient:
    return TestClient(create_app(source), base_url=ADDRESS, raise_server_exceptions=False, follow_redirects=False)
