"""A local HTTP server that stands for a tracker's service: it records the requests of the client, and answers as the test says."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


@dataclass(frozen=True)
class Sent:
    """One request. `body`: JSON where it is JSON, else text."""

    path: str
    headers: dict[str, str]
    body: Any


Answer = Callable[[Sent], "tuple[int, Any]"]
"""Status code and JSON body of the answer to a request."""


@dataclass
class RecordingServer:
    """`hang`: whether a request is never answered."""

    answer: Answer
    hang: Callable[[Sent], bool]
    url: str = ""
    requests: list[Sent] = field(default_factory=list)
    closed: Event = field(default_factory=Event)

    def bodies(self, path: str) -> list[Any]:
        """Bodies of the requests whose path ends so, in order."""
        return [sent.body for sent in list(self.requests) if sent.path.split("?")[0].endswith(path)]


@contextmanager
def recording_server(answer: Answer, *, hang: Callable[[Sent], bool] = lambda _sent: False) -> Iterator[RecordingServer]:
    recorded = RecordingServer(answer, hang)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(recorded))
    server.daemon_threads = True
    recorded.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield recorded
    finally:
        recorded.closed.set()
        server.shutdown()
        server.server_close()


def _handler(recorded: RecordingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = Sent(self.path, dict(self.headers), _body(self))
            recorded.requests.append(sent)
            if recorded.hang(sent):
                recorded.closed.wait()
                return
            status, value = recorded.answer(sent)
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST  # noqa: N815 -- http.server's names

        def log_message(self, *_: Any) -> None: ...

    return Handler


def _body(request: BaseHTTPRequestHandler) -> Any:
    content = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    encoding = request.headers.get("Content-Encoding", "")
    if encoding == "gzip":
        content = gzip.decompress(content)
    elif encoding == "deflate":
        content = zlib.decompress(content)
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
