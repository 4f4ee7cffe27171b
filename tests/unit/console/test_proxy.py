"""Users that an authenticating proxy names, up to the header that the API server gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from tuneyard.cluster import HubAccess, NotAllowed
from tuneyard.console.hosted import ProxyReaders, ProxyTrust

NAMES = ("José", "Łukasz", "Дмитрий", "李雷", "grace@example.com")
TRUST = ProxyTrust(user_header="X-User", groups_header="X-Groups", groups=frozenset(["ml-team", "équipe"]), secret="s" * 32)


def request_of(*headers: tuple[str, bytes]) -> Request:
    return Request({"type": "http", "headers": [(name.lower().encode(), value) for name, value in headers]})


@pytest.fixture
def api_server() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that answers as an API server does, and the headers of the requests that it got."""
    seen: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"status": {"userInfo": {"username": "x"}}}).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def test_a_user_with_other_groups_is_another_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Access:
        address = SimpleNamespace(hub="hub")

        def own(self) -> Any:
            return SimpleNamespace()

        def in_the_name_of(self, _user: str, groups: list[str]) -> Any:
            asked.append(groups)
            return SimpleNamespace()

    monkeypatch.setattr(ProxyTrust, "check", lambda _trust, _request: None)
    readers = ProxyReaders(Access(), TRUST)  # type: ignore[arg-type]
    of_team, alone = (request_of(("X-User", b"jo"), *groups) for groups in ([("X-Groups", b"ml-team")], []))
    first = readers.of(of_team)
    assert readers.of(of_team) is first
    assert readers.of(alone) is not first
    assert asked == [["ml-team"], []]


@pytest.mark.parametrize("name", NAMES)
def test_a_user_is_named_in_utf_8(name: str) -> None:
    assert TRUST.user(request_of(("X-User", name.encode()))) == name


@pytest.mark.parametrize("value", [b"Jos\xe9", b"\xff\xfe", "a\u202eb".encode(), "a\u00a0b".encode(), b"a\x85", "李".encode() * 254])
def test_a_user_that_is_no_printable_utf_8_is_refused(value: bytes) -> None:
    with pytest.raises(NotAllowed, match="cannot be one"):
        TRUST.user(request_of(("X-User", value)))


def test_groups_are_named_in_utf_8_and_others_are_left_out() -> None:
    assert TRUST.groups_of(request_of(("X-Groups", "ml-team, équipe,others".encode()))) == ["ml-team", "équipe"]
    assert TRUST.groups_of(request_of(("X-Groups", b"ml-team,\xe9quipe"), ("X-Groups", b"ml-team"))) == ["ml-team"]


@pytest.mark.parametrize("name", NAMES)
def test_the_api_server_gets_the_names_in_utf_8(api_server: tuple[str, list[Any]], tmp_path: Path, name: str) -> None:
    address, seen = api_server
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {"token": "x"}}]}
    config |= {"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}
    config |= {"clusters": [{"name": "a", "cluster": {"server": address}}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    HubAccess(kubeconfig=tmp_path / "kubeconfig").in_the_name_of(name, ["équipe", "ml-team"]).user()
    (headers,) = seen
    assert headers["Impersonate-User"].encode("latin-1") == name.encode()
    assert [each.encode("latin-1").decode() for each in headers.get_all("Impersonate-Group")] == ["équipe", "ml-team"]
