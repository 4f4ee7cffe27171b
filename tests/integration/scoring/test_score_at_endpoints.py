"""Score tasks at an endpoint, run by the `tuneyard` command against a real server that behaves as OpenAI's: kills, keys, cost, schemas."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from tests.builders.models import write_model
from tests.servers.openai_server import KEY, MODEL, Fault, OpenAIServer, completion, error_json, prompt_of

ROWS = 40
PER_PART = 4
TUNEYARD = [str(Path(sys.executable).with_name("tuneyard"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"prompt": f"row {row}", "answer": f"answer to row {row}"} for row in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def _job(folder: Path, server: OpenAIServer, *, endpoint: dict[str, Any] | None = None, **score: Any) -> Path:
    fields = {
        "data": {"source": "rows.jsonl", "reference": "answer"},
        "engine": {"endpoint": {"url": server.url, "model": MODEL, "apiKeyVariable": "LLM_KEY", "atOnce": 4, **(endpoint or {})}},
        "metrics": ["exact_match"],
        "rowsPerPart": PER_PART,
        **score,
    }
    spec = {
        "env": [{"name": "LLM_KEY", "valueFrom": {"secretKeyRef": {"name": "llm", "key": "MY_KEY"}}}],
        "tasks": [{"name": "judge", "score": fields}],
    }
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "asked"}, "spec": spec}))
    return job


def _command(job: Path, *options: str) -> list[str]:
    return [*TUNEYARD, "run", str(job), "--out", str(job.parent / "out"), *options]


def _environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "MY_KEY": KEY, "HOME": os.environ.get("HOME", "/tmp"), **changes}


def _run(job: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(job, *options), capture_output=True, text=True, env=_environment(**variables), timeout=300)


def _result(job: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((job.parent / "out" / "report.json").read_text())["tasks"]["judge"]
    return result


def _table(job: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(job.parent / "out" / "judge" / "parts").to_pylist()
    return rows


def test_an_endpoint_embeds_what_another_one_has_answered_and_both_are_paid(folder: Path) -> None:
    with OpenAIServer() as server:
        place = {"url": server.url, "model": MODEL, "apiKeyVariable": "LLM_KEY"}
        paid = {"price": {"input": 1.0, "output": 10.0}}
        embedding = {"endpoint": {**place, "price": {"input": 0.5, "output": 0}}}
        job = _job(folder, server, endpoint=paid, metrics=["embedding_similarity"], embedding=embedding)
        ran = _run(job)
        refused = _run(
            _job(folder, server, metrics=["embedding_similarity"], embedding={"endpoint": {**place, "apiKeyVariable": "NO_KEY"}})
        )
    assert ran.returncode == 0, ran.stderr
    result = _result(job)
    assert result["metrics"]["embedding_similarity"] == 1.0
    assert result["details"]["embedding"]["paid_tokens"] == ROWS * 4
    assert result["cost"] == pytest.approx(ROWS * (2 * 1.0 + 4 * 10.0 + 4 * 0.5) / 1e6)
    assert [path for path, content in _files(folder / "out") if KEY.encode() in content] == []
    assert refused.returncode == 2
    assert "NO_KEY of embedding.endpoint.apiKeyVariable is not set" in refused.stderr


def _files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


def test_rows_cost_and_no_key_anywhere(folder: Path) -> None:
    """One row is refused with the key in the words of the server, and each answer repeats it."""
    said = Fault(400, error_json(f"bad request with {KEY}"))
    history = {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{folder}/history.db"}
    with OpenAIServer(lambda body, _: said if prompt_of(body) == "row 7" else None) as server:
        server.answer = lambda prompt: f"answer to {prompt}" if prompt != "row 8" else f"my key is {KEY}"
        job = _job(folder, server, endpoint={"price": {"input": 1.0, "output": 10.0}})
        ran = _run(job, **history)
    assert ran.returncode == 0, ran.stderr
    assert [row["row"] for row in _table(job)] == list(range(ROWS))
    assert _table(job)[7]["error"] == "the endpoint: HTTP 400: bad request with ***"
    assert _table(job)[8]["output"] == "my key is ***"
    result = _result(job)
    assert (result["rows"], result["errors"]) == (ROWS, 1)
    assert result["metrics"]["exact_match"] == pytest.approx(38 / 39)
    assert result["cost"] == pytest.approx((39 * 2 * 1.0 + 39 * 4 * 10.0) / 1e6)
    assert result["cost_per_1000_rows"] == pytest.approx(result["cost"] / ROWS * 1000)
    words = [*TUNEYARD, "usage", "--local", "--by", "job", "-o", "json"]
    (used,) = json.loads(subprocess.check_output(words, text=True, env=_environment(**history)))["rows"]
    assert (used["jobs"], used["gpu_hours"], used["cost"]) == (1, 0, 0)
    assert used["endpoint_cost"] == pytest.approx(result["cost"])
    assert KEY not in ran.stdout + ran.stderr
    assert [path for path, content in _files(folder / "out") if KEY.encode() in content] == []


def test_a_killed_run_asks_for_no_committed_row_again(folder: Path) -> None:
    slow = Fault(hang_s=0.15)

    def slowly(body: dict[str, Any], _: int) -> Fault:
        return Fault(200, json.dumps(completion(body, f"answer to {prompt_of(body)}")), hang_s=slow.hang_s)

    with OpenAIServer(slowly) as server:
        job = _job(folder, server)
        parts = folder / "out" / "judge" / "parts"
        process = subprocess.Popen(_command(job), env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(list(parts.glob("*.parquet"))) < 3:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        for child in children:
            child.kill()
        psutil.wait_procs(children, timeout=30)
        process.wait()
        committed = {row["row"] for row in _table(job)}
        server.plan = lambda _, __: None
        asked_before = len(server.asked)
        ran = _run(job, "--resume")
        again = {int(prompt_of(body).split()[1]) for body in server.asked[asked_before:]}
    assert ran.returncode == 0, ran.stderr
    assert 0 < len(committed) < ROWS
    assert again == set(range(ROWS)) - committed
    assert len(server.asked) - asked_before == len(again)
    assert [row["row"] for row in _table(job)] == list(range(ROWS))
    assert _result(job)["rows_resumed"] == len(committed)
    assert _result(job)["metrics"]["exact_match"] == 1.0


def test_tokens_of_a_failed_run_are_charged_once(folder: Path) -> None:
    """A key runs out in the middle of open parts; the second run goes on. Parts are charged to one of them, open rows to both."""
    history = {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{folder}/history.db"}
    words = [*TUNEYARD, "usage", "--local", "-o", "json"]

    def charged() -> float:
        (used,) = json.loads(subprocess.check_output(words, text=True, env=_environment(**history)))["rows"]
        return float(used["endpoint_cost"])

    with OpenAIServer(lambda _, number: Fault(401, error_json("no credit")) if number == 30 else None) as server:
        job = _job(folder, server, endpoint={"price": {"input": 1.0, "output": 10.0}, "atOnce": 1})
        assert _run(job, **history).returncode == 1
        answered, committed = len(server.asked) - 1, len(_table(job))
        first = charged()
        ran = _run(job, "--resume", **history)
        both = len(server.asked) - 1
    assert ran.returncode == 0, ran.stderr
    assert 0 < committed < answered
    assert first == pytest.approx(answered * (2 * 1.0 + 4 * 10.0) / 1e6)
    assert both == ROWS + answered - committed
    assert charged() == pytest.approx(both * (2 * 1.0 + 4 * 10.0) / 1e6)
    assert _result(job)["cost"] == pytest.approx(ROWS * (2 * 1.0 + 4 * 10.0) / 1e6)


@pytest.mark.long
def test_a_wrong_key_ends_the_run_with_the_next_step(folder: Path) -> None:
    with OpenAIServer(key="another") as server:
        job = _job(folder, server)
        ran = _run(job)
    assert ran.returncode == 1
    assert "HTTP 401" in ran.stderr
    assert "apiKeyVariable" in ran.stderr
    assert KEY not in ran.stdout + ran.stderr
    assert len(server.asked) <= 4
    assert [path for path, content in _files(folder / "out") if KEY.encode() in content] == []


def test_answers_in_the_form_of_a_schema(folder: Path) -> None:
    """Every other answer ignores the schema, as an endpoint may."""
    schema = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"], "additionalProperties": False}
    (folder / "schema.json").write_text(json.dumps(schema))
    with OpenAIServer(answer=lambda prompt: '{"good": true}' if int(prompt.split()[1]) % 2 else "yes, good") as server:
        job = _job(folder, server, generation={"schema": "schema.json"}, metrics=[])
        ran = _run(job)
    assert ran.returncode == 0, ran.stderr
    assert server.asked[0]["response_format"]["json_schema"]["schema"] == schema
    assert _result(job)["off_schema"] == ROWS // 2
    assert "do not follow generation.schema" in ran.stderr + ran.stdout


@pytest.mark.long
def test_the_server_of_vllm_answers_as_its_engine_does(folder: Path) -> None:
    """The same weights behind vLLM's own OpenAI server, greedy: text, chats and a schema."""
    write_model(folder / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    port = free_port()
    served = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model"), "--served-model-name", MODEL]
    options = ["--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "256", "--enforce-eager"]
    options += ["--structured-outputs-config", json.dumps({"backend": "guidance", "disable_any_whitespace": True})]
    environment = _environment(VLLM_CPU_KVCACHE_SPACE="1", VLLM_API_KEY=KEY, VLLM_NO_USAGE_STATS="1")
    server = subprocess.Popen([*served, *options], env=environment, start_new_session=True)
    try:
        wait_for_server(server, port)
        for chat in (True, False):
            data = {"source": "rows.jsonl", "reference": "answer", "chat": chat}
            common = {"data": data, "generation": {"maxTokens": 16}, "metrics": ["rouge_l"]}
            endpoint = {"url": f"http://127.0.0.1:{port}/v1", "model": MODEL, "apiKeyVariable": "LLM_KEY"}
            asked = _outputs(folder / f"asked-{chat}", {**common, "engine": {"endpoint": endpoint}})
            own = _outputs(folder / f"own-{chat}", {**common, "model": {"name": str(folder / "model")}})
            assert asked == own
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False}
        bound = _outputs(folder / "bound", {**common, "generation": {"maxTokens": 64, "schema": schema}, "engine": {"endpoint": endpoint}})
        assert set(bound) <= {'{"sure":true}', '{"sure":false}'}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _outputs(folder: Path, score: dict[str, Any]) -> list[str]:
    folder.mkdir()
    (folder / "rows.jsonl").write_bytes((folder.parent / "rows.jsonl").read_bytes())
    env = [{"name": "LLM_KEY", "valueFrom": {"secretKeyRef": {"name": "llm", "key": "MY_KEY"}}}]
    spec = {"env": env, "tasks": [{"name": "judge", "score": {"rowsPerPart": PER_PART, **score}}]}
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "asked"}, "spec": spec}))
    ran = _run(job)
    assert ran.returncode == 0, ran.stderr
    return [row["output"] for row in _table(job)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for_server(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert process.poll() is None, "vLLM's server ended"
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.5)
    raise AssertionError("vLLM's server does not answer")
