"""The console's page of a job's logs, through the hub's API."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient
from tests.cluster.logs_api.replica import Served
from tests.clusters.hub_client import as_user

from tuneyard.cluster import open_hub
from tuneyard.console import create_app
from tuneyard.console.hub import HubJobs, OneReader


def test_a_rank_is_chosen_and_its_lines_are_found(served: Served, two_ranks: str) -> None:
    client = TestClient(create_app(HubJobs(OneReader(open_hub(kubeconfig=served.reader)))), base_url="http://127.0.0.1:7420")
    page = client.get(f"/jobs/{two_ranks}/logs?source=rank-1").text
    assert "hello from rank-1\nmore from rank-1" in page
    assert '<option value="rank-0">' in page
    found = client.get(f"/jobs/{two_ranks}/logs?source=rank-0&find=MORE").text
    assert "more from rank-0" in found
    assert "hello" not in found
    assert client.get(f"/jobs/{two_ranks}/logs?source=rank-9").status_code == 404
    assert client.get(f"/jobs/{two_ranks}/logs?attempt=99").status_code == 200


def test_a_reader_without_the_right_to_logs_is_told_so(served: Served, two_ranks: str, tmp_path: Path) -> None:
    reader = as_user(served.hub, tmp_path, verbs=["get", "list"])
    client = TestClient(create_app(HubJobs(OneReader(open_hub(kubeconfig=reader)))), base_url="http://127.0.0.1:7420")
    answer = client.get(f"/jobs/{two_ranks}/logs")
    assert answer.status_code == 403
    assert "hello from" not in answer.text
