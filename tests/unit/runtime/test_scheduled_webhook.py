"""Messages of a runner to a webhook, a real server of this process: once, with retries, without following redirects."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tuneyard.api.schedule_parts import Notify
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.runtime.scheduled.webhook import Webhook

RUN = ScheduledRun(name="nightly-1", due="2026-11-23T02:00:00Z", verdict="missed", message="<no data>", notice="due")
FROM_VARIABLE = Notify.model_validate({"webhookFrom": {"secretKeyRef": {"name": "any", "key": "HOOK"}}})


@contextmanager
def server(*answers: int | str) -> Iterator[tuple[str, list[dict[str, object]]]]:
    got: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = answers[min(len(got), len(answers)) - 1]
            self.send_response(answer if isinstance(answer, int) else 302)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/SECRET-PATH", got
        http.shutdown()


def told(notify: Notify) -> str:
    webhook = Webhook("maps", "nightly", pauses_s=(0.01, 0.01))
    for _ in range(3):
        webhook.send(notify, [RUN])
    webhook.finish(20)
    assert "SECRET-PATH" not in webhook.told()["nightly-1"]
    return webhook.told()["nightly-1"]


def test_one_message_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(500, 429, 204) as (url, got):
        monkeypatch.setenv("HOOK", url)
        assert told(FROM_VARIABLE) == "sent"
        assert (len(got), got[0]["occasion"], got[0]["schedule"]) == (3, "missed", "nightly")


def test_redirects_and_refusals_are_final() -> None:
    with server(200) as (elsewhere, other), server(elsewhere) as (url, got):
        assert told(Notify(webhook=url)).endswith("answers with a redirect, which is not followed")
        assert (len(got), other) == (1, [])
    with server(404) as (url, got):
        assert told(Notify(webhook=url)).endswith("answers 404")
        assert len(got) == 1


def test_a_missing_variable_and_a_server_that_is_away_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    assert told(FROM_VARIABLE).startswith("not sent: the address is no URL")
    assert "cannot be reached" in told(Notify(webhook="http://127.0.0.1:1/SECRET-PATH"))


@pytest.mark.parametrize("address", ["http://[::1/SECRET-PATH", "http://h h/SECRET-PATH", "https://host:abc/SECRET-PATH"])
def test_an_address_that_is_none_is_said_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", address)
    assert told(FROM_VARIABLE) == "not sent: the address is no URL"


def test_a_server_that_speaks_no_http_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def greet(listener: socket.socket) -> None:
        for _ in range(3):
            accepted, _peer = listener.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(b"220 mail.example.com ready\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=greet, args=(listener,), daemon=True).start()
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{listener.getsockname()[1]}/SECRET-PATH")
        assert "cannot be reached: BadStatusLine" in told(FROM_VARIABLE)


def test_a_server_that_drips_its_headers_is_given_up_and_the_next_try_is_made() -> None:
    done = threading.Event()

    def drip(listener: socket.socket) -> None:
        accepted, _peer = listener.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 200 OK\r\n")
            while not done.wait(0.05):
                accepted.sendall(b"X-More: 1\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=drip, args=(listener,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        webhook = Webhook("maps", "nightly", pauses_s=(0.01,), limit_s=0.5)
        webhook.send(Notify(webhook=f"http://127.0.0.1:{listener.getsockname()[1]}/SECRET-PATH"), [RUN])
        webhook.finish(20)
        assert webhook.told() == {"nightly-1": "not sent: no whole answer came within 0.5 s"}
        assert not webhook.busy
        done.set()
        for thread in threads:
            thread.join(20)
