"""History of a hub in pages: moments and figures that a status or a row can hold, and a history that does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tuneyard.cluster import HubError, Missing, NotAllowed, Snapshot
from tuneyard.cluster.history_api import HistoryQuery
from tuneyard.console import create_app
from tuneyard.console.hub import HubJobs
from tuneyard.console.hub.reader import Reader
from tuneyard.console.hub.rows import moment_of

from .conftest import ADDRESS

FIRST, LAST = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"
PAGES = ("/history", "/history/one?namespace=default", "/compare?run=default/one&run=default/two")


def make_row(reference: str = "one", *, attempt: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    times = {"started_at": "2026-11-26T12:00:00Z", "ended_at": "2026-11-26T12:30:00Z", "placed_at": None}
    told = {"task": "train", "kind": "train", "number": 1, "status": "failed", "result": {}, "scores": {}, "plan": {}, "workers": 8}
    shown = {
        "id": reference,
        "name": "bot",
        "namespace": "default",
        "status": "failed",
        "team": "",
        "user": "",
        "gpu_hours": 1.0,
        "cost": 0.0,
    }
    spec = {"spec": {"tasks": [{"name": "train", "train": {"steps": 3}}]}}
    return {**shown, "message": "", "output": "", "spec": spec, **times, "attempts": [{**told, **times, **(attempt or {})}], **values}


class Past:
    """The API of history with one row under every name, or with an error."""

    def __init__(self, row: dict[str, Any], error: Exception | None = None) -> None:
        self._row = row
        self.error = error

    def job(self, _namespace: str, reference: str) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {**self._row, "id": reference}

    def usage(self, _namespace: str, query: HistoryQuery) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        row = {"team": "maps", "gpu_hours": 7.25, "cost": 21.5, "jobs": 1, "month": "2026-11"}
        return {"rows": [{**row, "job": "maps/gone", "sku": "h100-80gb"}] if "job" in query.by else [row]}

    def list(self, *_: Any) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return [self._row]


def client_of(past: Past, snapshots: list[dict[str, Any]] | None = None) -> TestClient:
    """`snapshots`: notes the snapshots that are asked for."""
    snapshots = [] if snapshots is None else snapshots

    def snapshot(**how: Any) -> Snapshot:
        snapshots.append(how)
        return Snapshot((), (), ())

    hub: Any = SimpleNamespace(address=SimpleNamespace(namespace="default"), past=past, listed=lambda **_: ((), ""), snapshot=snapshot)
    readers = SimpleNamespace(label="a hub", of=lambda _request, one=Reader(hub): one, close=lambda: None)
    return TestClient(create_app(HubJobs(readers)), base_url=ADDRESS, raise_server_exceptions=False)


@pytest.mark.parametrize("text", [FIRST, LAST, "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "2026-11-26T12:00:00", "", "-", None, 5])
def test_a_moment_that_not_every_time_zone_can_show_is_none(text: object) -> None:
    assert moment_of(text) is None


@pytest.mark.parametrize("text", [FIRST, LAST, "-", "2026-11-26"])
def test_history_until_no_moment_is_a_400_that_names_the_parameter(text: str) -> None:
    answer = client_of(Past(make_row())).get("/history", params={"until": text})
    assert answer.status_code == 400
    assert "until: " in answer.text


def test_history_until_a_moment_is_answered() -> None:
    assert client_of(Past(make_row())).get("/history", params={"until": "2026-11-26T12:00:00.123456Z"}).status_code == 200


@pytest.mark.parametrize(
    "values",
    [
        {"started_at": FIRST},
        {"started_at": LAST},
        {"ended_at": LAST},
        {"attempt": {"started_at": FIRST, "ended_at": LAST}},
        {"attempt": {"plan": "zero 3"}},
        {"attempt": {"plan": [1]}},
        {"attempt": {"series": [{"step": step, "loss": 1e308 * (-1) ** step, "tokens_per_s": 1e-320} for step in range(9)]}},
        {"spec": [1]},
        {"spec": {"spec": {"tasks": "train"}}},
    ],
)
def test_no_row_of_history_fails_with_a_bug(values: dict[str, Any]) -> None:
    client = client_of(Past(make_row(**values)))
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)


@pytest.mark.parametrize(("error", "status"), [(HubError("off", ""), 502), (Missing("none", ""), 404), (NotAllowed("no", ""), 404)])
def test_a_history_that_does_not_answer_is_told_from_a_job_that_it_has_not(error: Exception, status: int) -> None:
    client = client_of(Past(make_row(), error))
    for path in PAGES[1:]:
        assert client.get(path).status_code == status, path


@pytest.mark.parametrize("value", [None, "absent"])
@pytest.mark.parametrize("field", sorted(make_row()))
def test_a_row_without_a_field_has_a_page(field: str, value: str | None) -> None:
    row = make_row()
    row[field] = None
    if value == "absent":
        del row[field]
    client = client_of(Past(row))
    for page in PAGES:
        assert client.get(page).status_code == 200, page


@pytest.mark.parametrize(("error", "whole"), [(None, 0), (HubError("off", ""), 1)])
def test_use_of_the_last_days_reads_all_jobspecs_only_without_history(error: Exception | None, whole: int) -> None:
    snapshots: list[dict[str, Any]] = []
    client = client_of(Past(make_row(), error), snapshots)
    text = client.get("/teams/usage").text
    assert ("7.2" in text) is (error is None)
    assert ("From the hub&#39;s history" in text) is (error is None)
    assert len([how for how in snapshots if how.get("only") is None]) == whole
    assert "hx-get" not in client.get("/teams").text, "what is at hand is shown at once"
