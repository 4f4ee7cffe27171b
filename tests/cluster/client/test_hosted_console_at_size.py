"""The console of a hub with many JobSpecs: the time of its pages."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.builders.hub_jobs import make_manifest, make_running
from tests.clusters.hosted_consoles import READER, by_token, log_in, make_account
from tests.clusters.hub_client import create, report
from tests.testcluster import Hub


@pytest.mark.long
def test_ten_thousand_jobspecs(hub: Hub, kubeconfig: Path) -> None:
    """Prints the time of each page, as the figure of docs/tried.md."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: create(hub, make_manifest(f"job-{n:05}", "maps"), "maps"), range(10_000)))
    report(hub, make_running(), "job-00042", "maps")
    client = by_token(kubeconfig)
    log_in(client, make_account(hub, "bulk", role=READER, namespaces=["maps"]))
    print(f"the first page: {1000 * _seconds(client, '/jobs'):.0f} ms")
    for path in ("/clusters", "/teams", "/jobs/job-00007?namespace=maps"):
        log_in(client, make_account(hub, f"bulk-{path[1:4]}", role=READER, namespaces=["maps"]))
        print(f"{path:<20} as the first page of a reader: {1000 * _seconds(client, path):.0f} ms")
    again = []
    for number in range(5):
        log_in(client, make_account(hub, f"bulk-{number}", role=READER, namespaces=["maps"]))
        again.append(_seconds(client, "/jobs"))
    print(f"the first page of five others: {1000 * sorted(again)[2]:.0f} ms (median), {1000 * max(again):.0f} ms at most")
    for path in ("/jobs", "/jobs?q=job-49", "/", "/queue", "/clusters", "/teams"):
        times = []
        for _ in range(9):
            times.append(_seconds(client, path))
        print(f"{path:<20} {1000 * sorted(times)[4]:.0f} ms (median of 9), {1000 * max(times):.0f} ms at most")


def _seconds(client: TestClient, path: str) -> float:
    began = time.monotonic()
    assert client.get(path).status_code == 200
    return time.monotonic() - began
