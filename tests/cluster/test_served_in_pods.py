"""A model that a job serves on a real member: asked through a port forward, scaled to zero for lack of requests, and back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import sentences, write_model
from tests.cluster.home import OURS, logs, secret
from tests.servers.installed import free_port
from tests.testcluster import Member
from tests.testcluster.binaries import binary
from tests.testcluster.install import BUCKET, JOBS, Storage
from tests.testcluster.waiting import wait_for

from tuneyard.cli import main
from tuneyard.data.visible import visible
from tuneyard.storage import open_store

pytestmark = pytest.mark.long
KEY = "sk-never-write-me-down-4711"
PROMPTS = sentences(3)
TOKENS = 8
SERVED = f"s3://{BUCKET}/served"
IDLE_S = 60
"""Longer than the questions of this test take one after the other."""


@pytest.fixture(scope="module")
def model(storage_of: tuple[Member, Storage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model that lies in storage too."""
    folder = tmp_path_factory.mktemp("model") / "base"
    write_model(folder, hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in storage_of[1].environment.items():
            patch.setenv(name, value)
        for file in folder.iterdir():
            open_store(f"{SERVED}/base").put(file.name, file.read_bytes())
    return folder


def job(name: str = "served", place: str = f"{SERVED}/base") -> dict[str, Any]:
    serve = {"models": [{"name": place, "servedAs": "bot"}], "idle": IDLE_S, "maxLength": 128}
    key = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}
    tasks = [{"name": "serve", "serve": serve, "resources": {"sku": ["cpu"]}}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": {"env": [key], "tasks": tasks}}


@contextmanager
def forwarded(home: Member, service: str) -> Iterator[str]:
    """The address of a Service of the member on this machine."""
    port = free_port()
    words = ("port-forward", "-n", JOBS, f"service/{service}", f"{port}:8000")
    command = [binary("kubectl"), "--kubeconfig", str(home.kubeconfig), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as forward:
        assert forward.stdout is not None
        try:
            said = forward.stdout.readline()
            assert said.startswith("Forwarding from"), said
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            forward.terminate()


def chatted(url: str, key: str = KEY) -> list[str]:
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key=key, max_retries=0, timeout=300)
    asked = ({"role": "user", "content": prompt} for prompt in PROMPTS)
    made = [client.chat.completions.create(model="bot", messages=[each], max_tokens=TOKENS, temperature=0) for each in asked]
    return [each.choices[0].message.content or "" for each in made]


def test_a_served_model_answers_sleeps_and_is_woken_by_a_request(
    home: Member, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from openai import AuthenticationError, InternalServerError

    assert main(["generate", str(model), *PROMPTS, "--max-tokens", str(TOKENS)]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setenv("KUBECONFIG", str(home.kubeconfig))
    home.apply(secret("default", "bot", {"key": KEY}), job())

    def state() -> dict[str, Any]:
        return dict(home.api.get(f"{OURS}/namespaces/default/jobspecs/served").get("status", {}))

    def words() -> str:
        return json.dumps(state())[:3000] + logs(home)

    def serving() -> str | None:
        summary = state().get("progress", {}).get("summary", "")
        assert state().get("phase") not in ("Failed", "Cancelled"), words()
        return summary.removeprefix("serving at ") if summary.startswith("serving at ") else None

    def pods() -> list[str]:
        return [pod["metadata"]["name"] for pod in home.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]]

    def shown(*command: str) -> str:
        assert main([*command]) == 0
        return capsys.readouterr().out

    urls = []
    for number in (1, 2):
        urls.append(wait_for("a server", serving, limit_s=900, every_s=0.5, words=words))
        service = urls[-1].removeprefix("http://").partition(".")[0]
        with forwarded(home, service) as url:
            assert "".join(f"{visible(answer)}\n" for answer in chatted(url)) == expected
            with pytest.raises(AuthenticationError):
                chatted(url, key="another")
        wait_for("an open door", lambda: "the next request" in state().get("message", ""), limit_s=600, words=words)
        wait_for("no pods but the door", lambda: all("door" in name for name in pods()), limit_s=300, words=words)
        assert len(state()["attempts"]) == number
        with forwarded(home, service) as url, pytest.raises(AuthenticationError):
            chatted(url, key="another")
        assert "Asleep" in shown("status", "served")
        if number == 1:
            with forwarded(home, service) as url, pytest.raises(InternalServerError, match="the model is asleep"):
                chatted(url)
    assert urls[0] == urls[1]
    assert KEY not in home.kubectl("get", "rayjobs,services,attemptreports", "-n", JOBS, "-o", "yaml") + words()
    home.kubectl("delete", "jobspec", "served", "-n", "default", "--timeout=240s")
    wait_for("no pods", lambda: not pods(), limit_s=300)


def test_a_model_that_is_not_there_fails_the_job_with_its_reason(home: Member) -> None:
    home.apply(secret("default", "bot", {"key": KEY}), job("missing", f"{SERVED}/nothing"))

    def failed() -> str | None:
        status = home.api.get(f"{OURS}/namespaces/default/jobspecs/missing").get("status", {})
        return status["message"] if status.get("phase") == "Failed" else None

    said = wait_for("its failure", failed, limit_s=900, every_s=0.5, words=lambda: logs(home))
    assert f"there is nothing at {SERVED}/nothing" in said
    home.kubectl("delete", "jobspec", "missing", "-n", "default", "--timeout=240s")
