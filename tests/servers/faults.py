"""Faults of storage: a proxy before a real S3 server that can be told to answer 503 for a while."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class S3Proxy:
    """Passes requests on to an S3 server, unless it is away: for a while, or for what has `refused_path` in its path."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.refused = 0
        self.refused_path = ""
        self._away_until = 0.0

    def away_for(self, seconds: float) -> None:
        """Answer 503 from now on, so long."""
        self._away_until = time.monotonic() + seconds

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self._away_until

    @contextmanager
    def listening(self) -> Iterator[int]:
        """Its port."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if proxy.is_away or (proxy.refused_path and proxy.refused_path in self.path):
                    proxy.refused += 1
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                server = http.client.HTTPConnection("127.0.0.1", proxy.target_port, timeout=60)
                server.request(self.command, self.path, body=body, headers=dict(self.headers))
                answer = server.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(content)
                server.close()

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815 - names of http.server

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
