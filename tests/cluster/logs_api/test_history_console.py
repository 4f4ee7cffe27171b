"""The console's pages over the hub's API of history: jobs whose JobSpecs are gone, comparisons, use by month."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient
from tests.cluster.logs_api.conftest import binding
from tests.cluster.logs_api.replica import LOG, Served, make_job, raw
from tests.cluster.logs_api.test_history_readers import available
from tests.testcluster.waiting import wait_for
from tests.unit.operators.test_history_rows import attempt, jobspec, status

from tuneyard.api import JobStatus, Phase
from tuneyard.api.wire import read
from tuneyard.cluster import open_hub
from tuneyard.console import create_app
from tuneyard.console.hub import HubJobs, OneReader
from tuneyard.tracking import History, tables
from tuneyard.tracking.task_logs import Chunk
from tuneyard_operators.history.rows import job_key, rows_of

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def gone(served: Served) -> Iterator[list[str]]:
    """Three jobs of one name without JobSpecs, with curves; the paths of their pages, the newest first. Two of other namespaces."""
    wait_for("the API of history", lambda: available(served), limit_s=120, words=lambda: served.operator.log[-3000:])
    hub = served.hub.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    history = History.open(f"sqlite:///{served.history}")
    for number, (name, namespace) in enumerate([("gone", "default")] * 3 + [("elsewhere", "maps"), ("before", "made-anew")]):
        created = (NOW - timedelta(hours=9 - number)).isoformat()
        item = jobspec(creationTimestamp=created, name=name, namespace=namespace, uid=f"console-{number}")
        ended = (NOW - timedelta(hours=8 - number)).isoformat()
        state = status(attempt(1, 0, 60), phase=Phase.SUCCEEDED, finished_at=ended)
        state.attempts[0].placed_at = state.attempts[0].started_at = created
        state.attempts[0].ended_at = ended
        history.record([rows_of(item, state, hub)], NOW)
    engine = sa.create_engine(f"sqlite:///{served.history}")
    with engine.begin() as connection:
        keys = connection.execute(sa.select(tables.attempts.c.id, tables.jobs.c.id).join(tables.jobs).where(tables.jobs.c.name == "gone"))
        found = list(keys)
        for place, (key, _) in enumerate(found):
            steps = [{"attempt_id": key, "step": step, "loss": 3.0 / step, "tokens_per_s": 5_000.0 + place} for step in range(1, 40)]
            connection.execute(tables.steps.insert(), steps)
    yield [f"default/{job}" for _, job in found]
    history.close()
    _erase(engine)


def _erase(engine: sa.Engine) -> None:
    """Remove the jobs of this file: other files count what is on record."""
    jobs = sa.select(tables.jobs.c.id).where(tables.jobs.c.name.in_(["gone", "elsewhere", "before"]))
    attempts = sa.select(tables.attempts.c.id).where(tables.attempts.c.job_id.in_(jobs))
    with engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if "attempt_id" in table.c:
                connection.execute(table.delete().where(table.c.attempt_id.in_(attempts)))
            elif "job_id" in table.c:
                connection.execute(table.delete().where(table.c.job_id.in_(jobs)))
        connection.execute(tables.jobs.delete().where(tables.jobs.c.name.in_(["gone", "elsewhere", "before"])))


@pytest.fixture
def removed(served: Served, gone: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A job with logs in its storage that was recorded, and then removed; its uid. Its name is `gone` too."""
    assert gone
    hub = served.hub.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    store = served.store(make_job(served, "gone"), monkeypatch)
    for source in ("rank-0", "driver"):
        store.create(Chunk("train", 2, source, 1).path, f"hello from {source}\nbye\n".encode())
    item = served.hub.api.get("/apis/tuneyard.dev/v1alpha1/namespaces/default/jobspecs/gone")
    history = History.open(f"sqlite:///{served.history}")
    history.record([rows_of(item, read(JobStatus, item["status"]).value, hub)], NOW)
    history.close()
    served.hub.kubectl("delete", "jobspec", "gone", "-n", "default")
    return str(item["metadata"]["uid"])


def client_of(served: Served) -> TestClient:
    app = create_app(HubJobs(OneReader(open_hub(kubeconfig=served.reader))))
    return TestClient(app, base_url="http://127.0.0.1:7420", raise_server_exceptions=False)


def test_a_job_whose_jobspec_is_gone_has_its_page(served: Served, gone: list[str]) -> None:
    client = client_of(served)
    listed = client.get("/history?name=gone").text
    assert listed.count('name="run"') == 3
    page = client.get("/jobs/gone").text  # leads to the newest on record
    for shown in (
        "on record",
        "Tokens/s",
        "Loss over steps",
        "The hub no longer holds its JobSpec",
        "h100-80gb",
        "Other jobs of this name",
    ):
        assert shown in page, shown
    namespace, _, key = gone[0].partition("/")
    assert client.get(f"/history/{key}?namespace={namespace}").status_code == 200


def test_past_jobs_are_compared(served: Served, gone: list[str]) -> None:
    client = client_of(served)
    page = client.get("/compare", params={"run": gone}).text
    assert "Training loss" in page
    assert page.count("/history/") >= 3
    assert client.get("/compare", params={"run": gone[:1]}).status_code == 400


@pytest.mark.usefixtures("gone")
def test_use_by_month_is_that_of_the_namespaces_that_the_reader_may_see(served: Served) -> None:
    page = client_of(served).get("/teams").text
    assert "By month" in page
    assert f"{NOW:%Y-%m}" in page


@pytest.mark.usefixtures("gone")
def test_past_jobs_of_other_namespaces_are_as_if_they_did_not_exist(served: Served) -> None:
    client = client_of(served)
    assert "elsewhere" not in client.get("/history").text
    hidden, absent = client.get("/history/elsewhere?namespace=maps"), client.get("/history/elsewhere?namespace=no-such")
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace("maps", "no-such") == absent.text


def test_logs_of_a_job_whose_jobspec_is_gone(served: Served, removed: str) -> None:
    client, key = client_of(served), job_key(removed)
    assert f"/history/{key}/logs?namespace=default" in client.get(f"/history/{key}?namespace=default").text
    page = client.get(f"/history/{key}/logs?namespace=default")
    assert page.status_code == 200, page.text
    assert "hello from rank-0" in page.text
    found = client.get(f"/history/{key}/logs?namespace=default&source=driver&find=BYE").text
    assert "bye" in found
    assert "hello from driver" not in found
    assert raw(served, "gone", source="driver", format="text") == "hello from driver\nbye\n"


@pytest.mark.usefixtures("gone")
def test_a_job_that_is_older_than_its_namespace_is_none_of_it(served: Served, tmp_path: Path) -> None:
    """The namespace was another team's when the job ran, and was removed and made anew since: its record is for all namespaces only."""
    name, api = "made-anew", "/apis/history.tuneyard.dev/v1alpha1"
    served.hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, binding("ada", "view", name))
    (tmp_path / "ada").write_text(served.hub.kubeconfig_for("ada"))

    def as_ada(path: str) -> str:
        return served.hub.kubectl("--kubeconfig", str(tmp_path / "ada"), "get", "--raw", path)

    wait_for("ada's right", lambda: '"items": []' in _ask(as_ada, f"{api}/namespaces/{name}/pastjobs"), limit_s=60)
    assert json.loads(as_ada(f"{api}/namespaces/{name}/usages"))["rows"] == []
    unseen = (f"{api}/namespaces/{name}/pastjobs/before", f"{LOG.format(name, 'before')}?uid=console-4")
    for path in (*unseen, f"{LOG.format('default', 'before')}?uid=console-3"):  # the last is of another namespace
        with pytest.raises(RuntimeError, match="not found"):
            as_ada(path)
    page = client_of(served).get(f"/history/{job_key('console-4')}?namespace={name}")
    assert page.status_code == 404, page.text
    everywhere = served.hub.api.get(f"{api}/pastjobs?name=before")["items"]
    assert [each["metadata"]["namespace"] for each in everywhere] == [name]


def _ask(ask: Callable[[str], str], path: str) -> str:
    try:
        return json.dumps(json.loads(ask(path)))
    except RuntimeError as refused:
        return str(refused)


def test_who_may_not_read_logs_reads_none_of_a_job_that_is_gone(served: Served, removed: str, tmp_path: Path) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    with pytest.raises(RuntimeError, match="forbidden"):
        served.hub.kubectl("--kubeconfig", str(tmp_path / "eve"), "get", "--raw", f"{LOG.format('default', 'gone')}?uid={removed}")
