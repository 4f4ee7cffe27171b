"""A member's kubeconfig: a server and inline credentials, and nothing that runs, reads a file or tells a secret."""

from __future__ import annotations

import asyncio
import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import event, given
from hypothesis import strategies as st

from tuneyard_operators.kube import Unreachable, from_kubeconfig_text
from tuneyard_operators.kube.kubeconfig import Unusable, inline_kubeconfig

TOKEN = "eyJhbGciOi.very-secret"


def kubeconfig(*, user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:9", **cluster}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
    }


def connect(text: str) -> str:
    """The server of a connection by `text`."""

    async def made() -> str:
        connection = await from_kubeconfig_text(text)
        await connection.close()
        return connection.server

    return asyncio.run(made())


def refusal(found: Any) -> str:
    with pytest.raises(Unreachable) as refused:
        connect(found if isinstance(found, str) else yaml.safe_dump(found))
    assert "secret" not in refused.value.message
    return refused.value.message


def test_a_server_and_a_token_are_taken() -> None:
    assert connect(yaml.safe_dump(kubeconfig())) == "https://127.0.0.1:9"
    assert connect(yaml.safe_dump(kubeconfig(user={"username": "a", "password": "b"}) | {"preferences": {}}))


def test_what_runs_a_program_runs_none(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(ran)]}
    assert "its user has exec, which runs a program" in refusal(kubeconfig(user={"exec": plugin}))
    provider = {"name": "gcp", "config": {"cmd-path": "touch", "cmd-args": str(ran)}}
    assert "its user has auth-provider, which runs code of a cloud" in refusal(kubeconfig(user={"auth-provider": provider}))
    assert not ran.exists()


@pytest.mark.parametrize("field", ["client-certificate", "client-key", "tokenFile"])
def test_files_of_the_hub_are_not_read(field: str) -> None:
    said = refusal(kubeconfig(user={field: "/var/run/secrets/kubernetes.io/serviceaccount/token"}))
    assert f"its user has {field}, which reads a file" in said
    assert "helm get notes tuneyard-member" in said


def test_a_file_of_authorities_is_not_read() -> None:
    assert "its cluster has certificate-authority, which reads a file" in refusal(kubeconfig(**{"certificate-authority": "/etc/passwd"}))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("", "not a YAML mapping"),
        (f"users: [\n  token: {TOKEN}\n  - x: {{", "no YAML: there is an error in line"),
        (f"token: *{TOKEN}", "no YAML"),
        ({}, "names no current-context"),
        ({"current-context": TOKEN}, "has no context of the name"),
        (kubeconfig() | {"users": []}, "has no user of the name"),
        (kubeconfig() | {"clusters": "k"}, "has no cluster of the name"),
        (kubeconfig(server="ftp://secret"), "its server is no address"),
        (kubeconfig(server=["https://x"]), "server of its cluster is no text"),
        (kubeconfig(server="https://admin:very-secret@10.0.0.1"), "its server holds a user name or password"),
        (kubeconfig(server="https://10.0.0.1:99999"), "its server is no address"),
        (kubeconfig(user={"token": f"{TOKEN}\nX-Other: y"}), "its token holds"),
        (kubeconfig(user={"token": {"a": "secret"}}), "token of its user is no text"),
        (kubeconfig(user={"client-certificate-data": base64.b64encode(b"secret").decode(), "client-key-data": "x"}), "cannot be read"),
        (kubeconfig(**{"certificate-authority-data": base64.b64encode(b"secret").decode()}), "certificates or key cannot be read"),
        (kubeconfig(user={"as": "root"}), "its user has as, which the hub does not accept"),
    ],
)
def test_what_is_wrong_is_told_without_a_secret(found: Any, why: str) -> None:
    assert why in refusal(found)


_KEYS = st.sampled_from(["name", "user", "cluster", "context", "token", "server"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([TOKEN, "c", "k", "u"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["current-context", "contexts", "clusters", "users"]), _VALUES))
def test_any_document_is_read_or_refused(part: dict[str, Any]) -> None:
    try:
        found = inline_kubeconfig(yaml.safe_dump(kubeconfig() | part))
    except Unusable as refused:
        event("refused")
        said = str(refused)
    else:
        said = found["clusters"][0]["cluster"]["server"]
    assert TOKEN not in said


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked, as proxies in trouble do."""

    def do_GET(self) -> None:
        self.send_response(502)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())

    def log_message(self, *_: object) -> None: ...


def test_an_answer_that_repeats_the_token_is_quoted_without_it() -> None:
    async def asked(server: str) -> str:
        connection = await from_kubeconfig_text(yaml.safe_dump(kubeconfig(server=server)))
        try:
            await connection.raw("/readyz")
        except Unreachable as error:
            return error.message
        finally:
            await connection.close()
        raise AssertionError("it answered")

    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        said = asyncio.run(asked(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
        thread.join()
    assert "uthorization: Bearer ***" in said
    assert TOKEN not in said
