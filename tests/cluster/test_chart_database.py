"""The PostgreSQL of the hub's chart, under a hub in a pod: rows of jobs on pods are in it, also of a time when it was away."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError
from tests.cluster.home import OURS, logs, values
from tests.cluster.test_charts import SYSTEM, helm
from tests.testcluster import Member
from tests.testcluster.postgres_image import POSTGRES_IMAGE, postgres_image
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB

from tuneyard.tracking import tables

POD = "tuneyard-postgresql-0"
USER_ID = 999
"""Of the official image, which the chart names."""
PAST = "/apis/history.tuneyard.dev/v1alpha1/namespaces/default/pastjobs"


def job(name: str, command: str) -> dict[str, Any]:
    task = {"name": "say", "process": {"command": ["bash", "-c", f"{command} > $TUNEYARD_OUTPUT/said"]}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": {"tasks": [task]}}


def disk(folder: Path) -> dict[str, Any]:
    """A volume of this machine for the claim of the chart's StatefulSet: no provisioner runs here."""
    folder.mkdir()
    os.chown(folder, USER_ID, USER_ID)
    claim = {"namespace": SYSTEM, "name": f"data-{POD}"}
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}, "claimRef": claim}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "history"}, "spec": spec}


@pytest.fixture
def database(home: Member) -> Iterator[Member]:
    """The cluster with a hub that keeps a history in the chart's own PostgreSQL; without it again afterwards."""
    home.load_image(postgres_image(home.folder))
    home.apply(disk(home.folder / "history"))
    chosen = {**values(home), "postgresql": {"enabled": True, "image": POSTGRES_IMAGE}}
    helm(home, "upgrade", HUB, str(CHARTS / HUB), values=chosen)
    home.kubectl("rollout", "status", "statefulset/tuneyard-postgresql", "-n", SYSTEM, "--timeout=400s")
    home.kubectl("rollout", "status", "deployment/tuneyard-hub", "-n", SYSTEM, "--timeout=400s")
    yield home
    home.kubectl("delete", "jobspecs", "--all", "-n", "default", "--timeout=240s")
    helm(home, "upgrade", HUB, str(CHARTS / HUB), values=values(home))
    home.kubectl("rollout", "status", "deployment/tuneyard-hub", "-n", SYSTEM, "--timeout=400s")


def engine(member: Member) -> sa.Engine:
    """The database, at its pod, with the password of the chart's Secret."""
    secret = member.api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/tuneyard-postgresql")["data"]["password"]
    pod = member.api.get(f"/api/v1/namespaces/{SYSTEM}/pods/{POD}")["status"]["podIP"]
    url = sa.URL.create("postgresql+psycopg", "tuneyard", base64.b64decode(secret).decode(), pod, 5432, "tuneyard")
    return sa.create_engine(url, connect_args={"connect_timeout": 10}, poolclass=sa.NullPool)


def rows(member: Member) -> Counter[tuple[str, str]]:
    """(name, status) of all jobs on record. Empty while the database is away."""
    try:
        with engine(member).connect() as connection:
            return Counter((row.name, row.status) for row in connection.execute(sa.select(tables.jobs.c.name, tables.jobs.c.status)))
    except (OperationalError, ProgrammingError):  # away, or not migrated yet
        return Counter()


def counted(member: Member, table: sa.Table) -> int:
    with engine(member).connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


@pytest.mark.long
def test_rows_of_jobs_are_in_the_database_of_the_chart_also_of_a_time_when_its_pod_was_killed(database: Member) -> None:
    def words() -> str:
        pods = database.kubectl("get", "pods", "-A", "-o", "wide")
        said = database.kubectl("logs", POD, "-n", SYSTEM, "--tail=30")
        return f"{pods}\n{said}\n{logs(database)[-6000:]}"

    def has(name: str, status: str) -> bool:
        return rows(database)[name, status] > 0

    database.apply(job("before", "date"), job("during", "sleep 5; date"))
    wait_for("a row of a running job", lambda: has("during", "running"), limit_s=600, every_s=0.3, words=words)
    database.kill_pod(POD, SYSTEM)
    database.apply(job("after", "date"))

    for name in ("before", "during", "after"):
        wait_for(f"the end of {name} on record", lambda name=name: has(name, "succeeded"), limit_s=900, every_s=1, words=words)
    assert rows(database) == Counter((name, "succeeded") for name in ("before", "during", "after"))
    assert (counted(database, tables.attempts), counted(database, tables.usage)) == (3, 3)
    (container,) = database.api.get(f"/api/v1/namespaces/{SYSTEM}/pods/{POD}")["status"]["containerStatuses"]
    assert container["restartCount"] >= 1, "it was killed, and came back"
    answer = json.loads(database.kubectl("get", "--raw", PAST))
    assert {item["run"]["name"]: item["run"]["attempts"] for item in answer["items"]} == {"before": 1, "during": 1, "after": 1}
    for name in ("before", "during", "after"):
        phase = database.api.get(f"{OURS}/namespaces/default/jobspecs/{name}")["status"]["phase"]
        assert phase == "Succeeded"
