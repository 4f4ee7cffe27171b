"""The pod that hears requests for a model that sleeps, as a process before a real API server, with the rights of a job."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from openai import APIStatusError, AuthenticationError, OpenAI
from tests.cluster.test_attempt_report import NAMESPACE, REPORTS, Member, member
from tests.servers.installed import free_port
from tests.servers.openai_server import OpenAIServer
from tests.testcluster.waiting import wait_for

__all__ = ["member"]
KEY = "a key of the job"
ASK = {"model": "small", "messages": [{"role": "user", "content": "Do you deliver to Graz?"}]}
PROGRAM = """
import asyncio, sys
from pathlib import Path
from tuneyard.runtime.attempt.member_api import ApiServer, ReportObject
from tuneyard.runtime.serve.door import listen

url, folder, namespace, name, key, port, hold_s = sys.argv[1:]
server = ApiServer(url, Path(folder) / "ca.crt", Path(folder) / "token")
asyncio.run(listen(ReportObject(server, namespace, name), key, "127.0.0.1", int(port), float(hold_s)))
"""


@contextmanager
def door(member: Member, name: str, hold_s: float) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a door before the report `name`, which is made, and its process."""
    if member.hub.api.find(f"{REPORTS}/{name}") is None:
        member.hub.api.create(REPORTS, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "AttemptReport", "metadata": {"name": name}})
        member.hub.api.patch(f"{REPORTS}/{name}/status", {"status": {"phase": "Preempted", "idle": True}})
    port = free_port()
    words = (member.pod.url, member.pod.token_file.parent, NAMESPACE, name, KEY, port, hold_s)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, words)]) as process:
        try:
            wait_for("the door", lambda: _answers(port), every_s=0.1)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/health").status_code == 503
    except requests.RequestException:
        return False


def ask(url: str, key: str = KEY, path: str = "/v1/chat/completions") -> requests.Response:
    return requests.post(url + path, json=ASK, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def asked_at(member: Member, name: str) -> str:
    return str(member.hub.api.get(f"{REPORTS}/{name}")["status"].get("askedAt", ""))


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (lambda url: ask(url, key="another"), 401),
        (lambda url: requests.post(f"{url}/v1/completions", json=ASK), 401),
        (lambda url: requests.post(f"{url}/v1/completions", json=ASK, headers={"Authorization": KEY}), 401),
        (lambda url: ask(url, key=KEY.upper()), 401),
        (lambda url: requests.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {KEY}"}), 503),
        (lambda url: requests.get(f"{url}/health"), 503),
        (lambda url: ask(url, path="/v1/embeddings"), 503),
        (lambda url: requests.post(f"{url}/v1/completions", data=b"\0" * 10_000_000), 401),
    ],
)
def test_a_stranger_or_a_probe_wakes_nothing(member: Member, send: Callable[[str], requests.Response], status: int) -> None:
    with door(member, "probed", hold_s=0) as (url, _):
        answer = send(url)
        assert answer.status_code == status
        assert not asked_at(member, "probed")
        assert KEY not in answer.text


def test_a_flood_of_requests_is_told_once_and_everyone_hears_how_far_the_server_is(member: Member) -> None:
    member.hub.api.create(REPORTS, {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "AttemptReport", "metadata": {"name": "flooded"}})
    versions = set()
    with door(member, "flooded", hold_s=0) as (url, _), ThreadPoolExecutor(32) as pool:
        first = ask(url)
        assert (first.status_code, first.headers["Retry-After"]) == (503, "5")
        assert "the hub has not answered yet" in first.json()["error"]["message"]
        for answer in pool.map(lambda _: ask(url), range(100)):
            assert answer.status_code == 503
            versions.add(asked_at(member, "flooded"))
        assert len(versions) < 50, "it is told every few seconds, not at each request"
        member.hub.api.patch(f"{REPORTS}/flooded", {"spec": {"standing": "it waits for machines"}})
        told = wait_for("what the hub says", lambda: "it waits for machines" in (said := ask(url).text) and said)
        assert "A request has woken it" in told


def test_a_client_of_openais_api_gets_its_answer_once_a_server_is_there(member: Member) -> None:
    found: list[Any] = []
    with door(member, "held", hold_s=60) as (url, process):
        client = OpenAI(base_url=f"{url}/v1", api_key=KEY)  # with its own two tries more
        asking = threading.Thread(target=lambda: found.append(client.chat.completions.create(**ASK)))
        asking.start()
        wait_for("its request", lambda: asked_at(member, "held"))
        process.send_signal(signal.SIGTERM)  # as the hub removes the pod
        assert process.wait(60) in (0, -signal.SIGTERM)
        with OpenAIServer(key=KEY, port=int(url.rpartition(":")[2])):
            asking.join(60)
    assert found[0].choices[0].message.content == "answer to Do you deliver to Graz?"


def test_nobody_is_asked_to_come_again_once_the_job_is_suspended(member: Member) -> None:
    with door(member, "over", hold_s=0) as (url, _):
        member.hub.api.delete(f"{REPORTS}/over")
        answer = ask(url)
        assert answer.status_code == 503
        assert "Retry-After" not in answer.headers
        assert "its job is suspended, or has ended" in answer.text
        assert member.hub.api.find(f"{REPORTS}/over") is None, "it makes no report"


def test_without_the_api_server_the_caller_is_told_so(member: Member) -> None:
    with door(member, "alone", hold_s=0) as (url, _):
        token = member.pod.token_file.read_text()
        member.pod.token_file.write_text("no token")
        try:
            answer = ask(url)
        finally:
            member.pod.token_file.write_text(token)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
        assert "cannot be told of this request" in answer.text
        assert "no token" not in answer.text
        with pytest.raises(AuthenticationError):
            OpenAI(base_url=f"{url}/v1", api_key="another").chat.completions.create(**ASK)
        with pytest.raises(APIStatusError) as refused:
            OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0).chat.completions.create(**ASK)
        assert "is asleep" in refused.value.message
