"""An OTLP/HTTP receiver that decodes what it gets by OpenTelemetry's own protobuf messages, and looks at the traces it got."""

from __future__ import annotations

import gzip
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


@dataclass
class Receiver:
    """`got`: every span in the order of arrival. `status`: what requests are answered with; `delay_s`: how long that takes."""

    url: str = ""
    got: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    delay_s: float = 0.0
    refuse: str = ""
    """Requests that hold this text are refused with 400."""

    def trace(self) -> dict[bytes, Any]:
        """The spans of the only trace, by id. Spans that came twice must be the same, byte for byte."""
        assert len({span.trace_id for span in self.got}) == 1
        copies: defaultdict[bytes, set[bytes]] = defaultdict(set)
        for span in self.got:
            copies[span.span_id].add(span.SerializeToString(deterministic=True))
        assert {len(each) for each in copies.values()} == {1}
        return {span.span_id: span for span in self.got}

    def named(self, name: str) -> list[Any]:
        return [span for span in self.trace().values() if span.name == name]


def check_tree(spans: dict[bytes, Any], outer: bytes = b"") -> Any:
    """One root, no orphan, each span within its parent. Returns the root."""
    roots = [span for span in spans.values() if span.parent_span_id == outer]
    assert len(roots) == 1
    for span in spans.values():
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span is not roots[0]:
            parent = spans[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    return roots[0]


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@contextmanager
def receiver(**settings: Any) -> Iterator[Receiver]:
    made = Receiver(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = self.path.partition("?")[0]
            made.headers.append(dict(self.headers))
            time.sleep(made.delay_s)
            status = 400 if made.refuse and made.refuse.encode() in body else made.status
            if path == "/v1/traces" and status == 200:
                request = ExportTraceServiceRequest()
                request.ParseFromString(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                for group in request.resource_spans:
                    made.got += [span for scope in group.scope_spans for span in scope.spans]
            answer = ExportTraceServiceResponse().SerializeToString()
            try:
                self.send_response(status if path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # the sender has given up

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
