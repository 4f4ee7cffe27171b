"""Pods of data workers on a node of their own: KubeRay's autoscaler makes more while ranks wait for rows, and lets them go again."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.home import OURS, logs, may_patch_ray_clusters
from tests.servers.slow_store import SlowStore
from tests.testcluster import Member
from tests.testcluster.images import ROOT
from tests.testcluster.install import BUCKET, JOBS, Storage
from tests.testcluster.waiting import wait_for

from tuneyard.storage import CommitLog, open_store

HELD_S = 3.0
"""How long the store takes for a split: the rank reads the rows of one in less than a second."""
SPLITS = 24
SERVICE = {"minWorkers": 1, "maxWorkers": 3, "cpus": 0.1, "memoryGb": 1.5}
DATA = {"source": f"s3://{BUCKET}/texts/a.jsonl", "format": "text", "streaming": True, "maxLength": 64}
BATCH = 32
FED: dict[str, Any] = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
"""The quickstart's model on texts that data workers read; it trains until it is ended."""
FED["metadata"] = {"name": "fed", "namespace": "default"}
FED["spec"]["tasks"] = FED["spec"]["tasks"][:2]
FED["spec"]["tasks"][1]["train"] |= {
    "data": {**DATA, "service": SERVICE},
    "objective": "clm",
    "batch": {"global": BATCH, "micro": BATCH},
    "steps": 1_000_000,
    "strategy": "auto",
    "checkpoint": {"everySteps": 20, "keep": 1000},
}
FED["spec"]["tasks"][1]["resources"] = {"sku": ["cpu"], "workers": 1}


def texts(splits: int) -> bytes:
    """Lines of 2 KiB with a text of 5 to 60 words: how many tokens a number of rows has tells which rows they were."""
    chance, lines = random.Random(5), []
    for _ in range(splits * 256):
        words = " ".join(chance.choice(("guest", "table", "Friday", "mail", "window")) for _ in range(chance.randint(5, 60)))
        lines.append(json.dumps({"text": words, "note": "-" * (2018 - len(words))}))
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def slow(storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    """The cluster's store as a distant one, with the texts."""
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    open_store(f"s3://{BUCKET}/texts").put("a.jsonl", texts(SPLITS))
    host, port = storage_of[1].endpoint.removeprefix("http://").split(":")
    store = SlowStore((host, int(port)), HELD_S)
    yield store
    store.close()


def lengths(folder: Path, rows: int) -> list[int]:
    """Tokens of the first rows, as one undisturbed process reads them."""
    from transformers import AutoTokenizer

    from tuneyard.api import TrainData
    from tuneyard.data import prepare

    subprocess.run([sys.executable, "-m", "tuneyard.data.bookings", str(folder / "corpus")], check=True, capture_output=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "corpus" / "model")
    spec = TrainData.model_validate({**DATA, "workers": 0})
    prepared = prepare(spec, tokenizer, objective="clm", seed=42, cache_dir=folder / "cache")
    return [len(prepared.train[prepared.order.at(position)]["input_ids"]) for position in range(rows)]


def is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


@pytest.fixture
def fed(home: Member, slow: SlowStore) -> Iterator[None]:
    """The job; removed also where its test fails: it would train beside all others."""
    home.apply(FED | {"spec": {**FED["spec"], "env": [{"name": "AWS_ENDPOINT_URL", "value": slow.url}]}})
    yield
    home.kubectl("delete", "jobspec", "fed", "-n", "default", "--timeout=240s")


@pytest.mark.long
@pytest.mark.usefixtures("fed")
def test_data_pods_come_while_ranks_wait_and_leave_when_idle_and_no_row_is_lost(home: Member, tmp_path: Path) -> None:
    """In `make test`: `test_a_job_runs_with_these_rights_and_the_files_beside_it` has a data pod on its node,
    `test_there_are_as_many_workers_as_the_ranks_wait_for` and `test_rows_of_a_table_come_from_the_service_though_a_worker_is_killed` run
    without pods, and `test_data_pods_come_and_go_where_they_can` reads what KubeRay's autoscaler is told.
    """
    seen: set[str] = set()

    def job() -> dict[str, Any]:
        return dict(home.api.get(f"{OURS}/namespaces/default/jobspecs/fed").get("status") or {})

    def pods(group: str) -> list[dict[str, Any]]:
        every = home.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
        return [pod for pod in every if pod["metadata"]["labels"].get("ray.io/group") == group]

    def data_pods() -> list[str]:
        """Those whose Ray runs."""
        names = [pod["metadata"]["name"] for pod in pods("data") if is_ready(pod)]
        seen.update(names)
        return names

    def words() -> str:
        heads = [pod["metadata"]["name"] for pod in pods("headgroup")]
        said = [home.kubectl("logs", head, "-n", JOBS, "-c", "autoscaler", "--tail=60") for head in heads]
        return "\n".join([json.dumps(job())[:3000], *sorted(seen), *said, logs(home)])

    wait_for("more data pods", lambda: len(data_pods()) >= 2, limit_s=600, every_s=0.5, words=words)
    assert {pod["spec"]["nodeName"] for pod in pods("data")} == {f"{home.node_name}-2"}
    assert {pod["spec"]["nodeName"] for pod in pods("gang")} == {home.node_name}
    assert may_patch_ray_clusters(home, "tuneyard-autoscaler"), "while it runs, KubeRay's autoscaler has a role"
    assert not may_patch_ray_clusters(home, "tuneyard-job"), "code of a job could change the pods of all others"
    killed, before = data_pods()[-1], set(seen)
    home.kill_pod(killed, JOBS)
    wait_for("a data pod in its place", lambda: set(data_pods()) - before, limit_s=300, every_s=0.5, words=words)
    wait_for("idle data pods to leave", lambda: len(pods("data")) == SERVICE["minWorkers"], limit_s=600, every_s=1, words=words)
    (attempt,) = [each for each in job()["attempts"] if each["task"] == "base"]
    assert (attempt["phase"], attempt.get("failure")) == ("Running", None)

    output = open_store(f"{job()['output']}/base")
    commits = CommitLog(output, "checkpoints/log").read().commits
    counted = {extra["row"]: extra["tokens"] for commit in commits for extra in [output.manifest(commit.name).extra]}
    known = min(SPLITS * 256, max(counted))
    sums = [0, *accumulate(lengths(tmp_path, known))]
    assert {rows: tokens for rows, tokens in counted.items() if rows <= known} == {rows: sums[rows] for rows in counted if rows <= known}, (
        "a row was lost, doubled or out of its place"
    )
    assert known > 20 * BATCH
