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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from tests.builders.models import write_model
from tests.integration.runtime.conftest import tuneyard_here
from tests.servers.openai_server import KEY, MODEL, Fault, OpenAIServer, completion, error_json, prompt_of

ROWS = 40
PER_PART = 4
TUNEYARD = [str(Path(sys.executable).with_name("tuneyard"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _write_rows(tmp_path)


def _write_rows(folder: Path) -> Path:
    rows = [{"prompt": f"row {row}", "answer": f"answer to row {row}"} for row in range(ROWS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _score(server: OpenAIServer, *, endpoint: dict[str, Any] | None = None, **score: Any) -> dict[str, Any]:
    return {
        "data": {"source": "rows.jsonl", "reference": "answer"},
        "engine": {"endpoint": {"url": server.url, "model": MODEL, "apiKeyVariable": "LLM_KEY", "atOnce": 4, **(endpoint or {})}},
        "metrics": ["exact_match"],
        "rowsPerPart": PER_PART,
        **score,
    }


def _job(folder: Path, **tasks: dict[str, Any]) -> Path:
    """A job of these score tasks, with the key in a secret."""
    spec = {
        "env": [{"name": "LLM_KEY", "valueFrom": {"secretKeyRef": {"name": "llm", "key": "MY_KEY"}}}],
        "tasks": [{"name": name, "score": score} for name, score in tasks.items()],
    }
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "asked"}, "spec": spec}))
    return job


def _command(job: Path, *options: str) -> list[str]:
    return [*TUNEYARD, "run", str(job), "--out", str(job.parent / "out"), *options]


def _environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "MY_KEY": KEY, "HOME": os.environ.get("HOME", "/tmp"), **changes}


def _history(folder: Path) -> dict[str, str]:
    return {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{folder}/history.db"}


def _usage(folder: Path) -> dict[str, Any]:
    """The usage of the only job in the history."""
    used: dict[str, Any]
    (used,) = json.loads(tuneyard_here("usage", "--local", "--by", "job", "-o", "json", **_history(folder)).stdout)["rows"]
    return used


def _run(job: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(job, *options), capture_output=True, text=True, env=_environment(**variables), timeout=300)


def _result(folder: Path, task: str = "judge") -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())["tasks"][task]
    return result


def _table(folder: Path, task: str = "judge") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "out" / task / "parts").to_pylist()
    return rows


@dataclass(frozen=True)
class Finished:
    """A job that has run to its end: its folder, what it printed, and the requests that it sent."""

    folder: Path
    printed: str
    asked: list[dict[str, Any]]


SCHEMA = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"], "additionalProperties": False}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three tasks at one server. `judge`: the server refuses row 7 in words that hold the key, and its answer to row 8 repeats the key.
    `similar`: its answers are embedded. `shaped`: every other answer ignores the schema, as an endpoint may."""
    folder = _write_rows(tmp_path_factory.mktemp("asked"))
    texts = [{"prompt": f"text {row}", "answer": f"answer to text {row}"} for row in range(ROWS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    refused = Fault(400, error_json(f"bad request with {KEY}"))

    def replies(body: dict[str, Any], _: int) -> Fault | None:
        prompt = prompt_of(body)
        if "response_format" in body:
            text = '{"good": true}' if int(prompt.split()[1]) % 2 else "yes, good"
            return Fault(200, json.dumps(completion(body, text)))
        return refused if prompt == "row 7" else None

    with OpenAIServer(replies) as server:
        server.answer = lambda prompt: f"answer to {prompt}" if prompt != "row 8" else f"my key is {KEY}"
        paid = {"price": {"input": 1.0, "output": 10.0}}
        embedding = {"endpoint": {"url": server.url, "model": MODEL, "apiKeyVariable": "LLM_KEY", "price": {"input": 0.5, "output": 0}}}
        data = {"source": "texts.jsonl", "reference": "answer"}
        job = _job(
            folder,
            judge=_score(server, endpoint=paid),
            similar=_score(server, endpoint=paid, data=data, metrics=["embedding_similarity"], embedding=embedding),
            shaped=_score(server, generation={"schema": "schema.json"}, metrics=[]),
        )
        ran = _run(job, **_history(folder))
    assert ran.returncode == 0, ran.stderr
    return Finished(folder, ran.stdout + ran.stderr, server.asked)


def test_rows_come_out_in_order_with_their_errors_and_cost(finished: Finished) -> None:
    result, rows = _result(finished.folder), _table(finished.folder)
    assert [row["row"] for row in rows] == list(range(ROWS))
    assert rows[7]["error"] == "the endpoint: HTTP 400: bad request with ***"
    assert rows[8]["output"] == "my key is ***"
    assert (result["rows"], result["errors"]) == (ROWS, 1)
    assert result["metrics"]["exact_match"] == pytest.approx(38 / 39)
    assert result["cost"] == pytest.approx((39 * 2 * 1.0 + 39 * 4 * 10.0) / 1e6)
    assert result["cost_per_1000_rows"] == pytest.approx(result["cost"] / ROWS * 1000)


def test_an_endpoint_embeds_what_another_one_has_answered_and_both_are_paid(finished: Finished) -> None:
    result = _result(finished.folder, "similar")
    assert result["metrics"]["embedding_similarity"] == 1.0
    assert result["details"]["embedding"]["paid_tokens"] == ROWS * 4
    assert result["cost"] == pytest.approx(ROWS * (2 * 1.0 + 4 * 10.0 + 4 * 0.5) / 1e6)


def test_usage_has_the_cost_of_endpoints_and_no_gpu_hours(finished: Finished) -> None:
    used = _usage(finished.folder)
    assert (used["jobs"], used["gpu_hours"], used["cost"]) == (1, 0, 0)
    assert used["endpoint_cost"] == pytest.approx(sum(_result(finished.folder, task)["cost"] for task in ("judge", "similar")))


def test_answers_in_the_form_of_a_schema(finished: Finished) -> None:
    asked = [body["response_format"]["json_schema"]["schema"] for body in finished.asked if "response_format" in body]
    assert asked == [SCHEMA] * ROWS
    assert _result(finished.folder, "shaped")["off_schema"] == ROWS // 2
    assert "do not follow generation.schema" in finished.printed


def test_no_key_is_written_anywhere(finished: Finished) -> None:
    assert KEY not in finished.printed
    assert _files_with_key(finished.folder / "out") == []


def _files_with_key(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_key_of_embeddings_that_is_not_set_is_refused(folder: Path) -> None:
    with OpenAIServer() as server:
        place = {"url": server.url, "model": MODEL, "apiKeyVariable": "NO_KEY"}
        job = _job(folder, judge=_score(server, metrics=["embedding_similarity"], embedding={"endpoint": place}))
        ran = tuneyard_here("run", job, "--out", folder / "out", MY_KEY=KEY)
        assert server.asked == []
    assert ran.returncode == 2
    assert "NO_KEY of embedding.endpoint.apiKeyVariable is not set" in ran.stderr


def test_no_row_is_asked_for_or_charged_again_after_a_kill_and_a_failure(folder: Path) -> None:
    """The first run is killed. The key runs out in the second one, in the middle of open parts. The third one ends. Each part is charged to
    one run, open rows to both runs that have asked for them."""
    history, paid = _history(folder), {"price": {"input": 1.0, "output": 10.0}, "atOnce": 1}
    price = (2 * 1.0 + 4 * 10.0) / 1e6

    def slowly(body: dict[str, Any], _: int) -> Fault:
        return Fault(200, json.dumps(completion(body, f"answer to {prompt_of(body)}")), hang_s=0.15)

    with OpenAIServer(slowly) as server:
        job = _job(folder, judge=_score(server, endpoint=paid))
        _kill_after_parts(3, job, **history)
        committed = {row["row"] for row in _table(folder)}
        first = len(server.asked)
        server.plan = lambda _, number: Fault(401, error_json("no credit")) if number == first + 10 else None
        failed = _run(job, "--resume", **history)
        second = [_row(body) for body in server.asked[first:-1]]
        committed_by_both = {row["row"] for row in _table(folder)}
        charged = _usage(folder)["endpoint_cost"]
        ran = _run(job, "--resume", **history)
        third = [_row(body) for body in server.asked[first + len(second) + 1 :]]
    assert failed.returncode == 1
    assert ran.returncode == 0, ran.stderr
    assert 0 < len(committed) < len(committed_by_both) < len(committed) + len(second) < ROWS
    assert len(set(second)) == len(second) == 10
    assert not committed & set(second)
    assert sorted(third) == sorted(set(range(ROWS)) - committed_by_both)
    assert [row["row"] for row in _table(folder)] == list(range(ROWS))
    assert _result(folder)["rows_resumed"] == len(committed_by_both)
    assert _result(folder)["metrics"]["exact_match"] == 1.0
    assert charged == pytest.approx((len(committed) + len(second)) * price)
    assert _usage(folder)["endpoint_cost"] == pytest.approx((len(committed) + len(second) + len(third)) * price)
    assert _result(folder)["cost"] == pytest.approx(ROWS * price)


def _kill_after_parts(parts: int, job: Path, **variables: str) -> None:
    """Run the job, and kill all of its processes once so many parts are committed."""
    process = subprocess.Popen(_command(job), env=_environment(**variables), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list((job.parent / "out" / "judge" / "parts").glob("*.parquet"))) < parts:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=30)
    process.wait()


def _row(body: dict[str, Any]) -> int:
    return int(prompt_of(body).split()[1])


@pytest.mark.long
def test_a_wrong_key_ends_the_run_with_the_next_step(folder: Path) -> None:
    with OpenAIServer(key="another") as server:
        ran = _run(_job(folder, judge=_score(server)))
    assert ran.returncode == 1
    assert "HTTP 401" in ran.stderr
    assert "apiKeyVariable" in ran.stderr
    assert KEY not in ran.stdout + ran.stderr
    assert len(server.asked) <= 4
    assert _files_with_key(folder / "out") == []


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
    ran = _run(_job(folder, judge={"rowsPerPart": PER_PART, **score}))
    assert ran.returncode == 0, ran.stderr
    return [row["output"] for row in _table(folder)]


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
