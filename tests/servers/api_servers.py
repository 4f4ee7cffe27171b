"""An API server on localhost that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Answer:
    """`body`: JSON, or bytes as they are."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    target: str
    content_type: str
    body: Any


@dataclass
class ScriptedServer:
    """Answers come in order; the last one repeats. `/readyz` always answers ok, and is not counted."""

    url: str
    answers: list[Answer]
    asked: list[Asked] = field(default_factory=list)


def refusal(code: int, reason: str = "", message: str = "no", **details: Any) -> Answer:
    """A `Status` as API servers write it."""
    said = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Answer(code, {**said, **({"details": details} if details else {})})


@contextmanager
def scripted(answers: Sequence[Answer]) -> Iterator[ScriptedServer]:
    found = ScriptedServer("", list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.close_connection = True
            super().handle_one_request()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = Answer(body=b"ok")
            if self.path != "/readyz":
                content_type = self.headers.get("Content-Type", "")
                found.asked.append(Asked(self.command, self.path, content_type, json.loads(body) if body else None))
                answer = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.data)), "Connection": "close", **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of http.server

        def log_message(self, *_arguments: Any) -> None:
            """Tests read `asked` in place of a log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
