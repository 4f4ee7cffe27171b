"""A score task at an endpoint on a real member: the key from a Secret, no worker pod, a Ray that is closed to strangers, answers in
storage, cost in the status."""

from __future__ import annotations

import json
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.home import OURS, logs, secret
from tests.clusters.ray_access import check_that_ray_is_closed
from tests.servers.openai_server import KEY, MODEL, OpenAIServer
from tests.testcluster import Member
from tests.testcluster.install import BUCKET, JOBS, Storage
from tests.testcluster.waiting import wait_for

from tuneyard.storage import open_store

ROWS = 12


def job(url: str) -> dict[str, Any]:
    endpoint = {"url": url, "model": MODEL, "apiKeyVariable": "LLM_KEY", "price": {"input": 1000, "output": 10_000}}
    score = {
        "data": {"source": f"s3://{BUCKET}/evals/rows.jsonl", "reference": "answer"},
        "engine": {"endpoint": endpoint},
        "metrics": ["exact_match"],
    }
    key = {"name": "LLM_KEY", "valueFrom": {"secretKeyRef": {"name": "llm", "key": "api-key"}}}
    spec = {"env": [key], "tasks": [{"name": "judge", "score": score}]}
    return {
        "apiVersion": "tuneyard.dev/v1alpha1",
        "kind": "JobSpec",
        "metadata": {"name": "asked", "namespace": "default"},
        "spec": spec,
    }


def test_an_endpoint_scores_on_the_head_alone_with_a_key_that_no_object_or_log_shows(
    home: Member, storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    rows = [{"prompt": f"row {row}", "answer": f"answer to row {row}"} for row in range(ROWS)]
    open_store(f"s3://{BUCKET}/evals").put("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    home.apply(secret("default", "llm", {"api-key": KEY}))
    pods: set[str] = set()

    def ended() -> dict[str, Any] | None:
        found = home.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
        pods.update(pod["metadata"]["labels"].get("ray.io/node-type", "") for pod in found)
        status = home.api.get(f"{OURS}/namespaces/default/jobspecs/asked").get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    def words() -> str:
        return json.dumps(home.api.get(f"{OURS}/namespaces/default/jobspecs/asked").get("status", {}))[:3000] + logs(home)

    checked = threading.Event()

    def answer(prompt: str) -> str:
        checked.wait()
        return f"answer to {prompt}"

    with OpenAIServer(address=home.address, answer=answer) as server:
        home.apply(job(server.url))
        try:
            wait_for("a question", lambda: server.asked, limit_s=900, words=words)
            check_that_ray_is_closed(home, "asked")
        finally:
            checked.set()
        status = wait_for("the end of the job", ended, limit_s=900, every_s=0.2, words=words)

    assert status["phase"] == "Succeeded", words()
    assert sum(server.prompts().values()) == ROWS
    assert "worker" not in pods
    (task,) = status["tasks"]
    cost = ROWS * (2 * 1000 + 4 * 10_000) / 1e6
    assert task["metrics"]["exact_match"] == 1.0
    assert task["metrics"]["cost"] == pytest.approx(cost)
    assert task["metrics"]["cost_per_1000_rows"] == pytest.approx(cost / ROWS * 1000)
    assert status["attempts"][0]["placement"]["gpus"] == 0
    assert status["attempts"][0]["charged"] == pytest.approx(cost)
    parts = open_store(f"{status['output']}/judge/parts")
    (part,) = parts.list()
    assert pq.read_table(pa.BufferReader(parts.get(part.path)))["output"].to_pylist() == [row["answer"] for row in rows]
    assert KEY not in home.kubectl("get", "rayjobs,configmaps,attemptreports,pods", "-n", JOBS, "-o", "yaml") + words()
    home.kubectl("delete", "jobspec", "asked", "-n", "default", "--timeout=240s")
