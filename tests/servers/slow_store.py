"""A distant store: a door before an S3 server that holds every reading of a part of an object back, and passes all else at once.

It is slow by latency and takes no processor, so it can be tried on a small machine how many readers a trainer needs.
"""

from __future__ import annotations

import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_OF_THE_CONNECTION = ("transfer-encoding", "connection", "content-length")


class SlowStore(ThreadingHTTPServer):
    """Serves until `close`. `behind`: address and port of the S3 server; `held_s`: how long an answer is held back."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behind: tuple[str, int], held_s: float) -> None:
        super().__init__((behind[0], 0), _Held)
        self.behind, self.held_s = behind, held_s
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.behind[0]}:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Readers that are killed meanwhile are no news."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Held(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowStore

    def do_GET(self) -> None:
        if self.headers.get("Range"):
            time.sleep(self.server.held_s)
        self._pass()

    def _pass(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection(*self.server.behind)
        connection.request(self.command, self.path, body=sent or None, headers=dict(self.headers))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self._pass()

    def do_PUT(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def do_DELETE(self) -> None:
        self._pass()

    def log_message(self, *_: Any) -> None: ...
