"""A few lines of HTTP for the harness itself: what it asks of an API server must not depend on the clients under test."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
import yaml

_PATIENCE = 60
_LONGEST_REFUSAL = 2000
MERGE_PATCH = "application/merge-patch+json"
_APPLY = "fieldManager=kubectl&force=true&fieldValidation=Strict"
"""As `kubectl apply --server-side --force-conflicts` asks."""


class Refused(RuntimeError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class KubeApi:
    """An API server, as the user of a kubeconfig sees it."""

    kubeconfig: Path
    timeout_s: float = 60
    """A hang, and no measure of speed: servers have answered after more than 10 s where pods were starting."""

    @cached_property
    def _connection(self) -> tuple[str, urllib3.PoolManager]:
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        return cluster["server"], urllib3.PoolManager(ssl_context=context, maxsize=16, retries=False, timeout=self.timeout_s)

    def call(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """The decoded answer (text where it is not JSON, or nested too deep). `body`: to be encoded, or JSON as bytes.

        Raises:
            Refused: an error status; a server that asks for patience (429, as after a change to a CRD) is asked again for a minute.
            urllib3.exceptions.HTTPError: no answer.
        """
        server, pool = self._connection
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        for _ in range(_PATIENCE):
            answer = pool.request(method, server + path, body=data, headers={"Content-Type": content_type} if data else {})
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                break
            time.sleep(1)
        found = _decoded(answer.data)
        if answer.status >= 400:
            raise Refused(answer.status, str(found.get("message", found) if isinstance(found, dict) else found)[:_LONGEST_REFUSAL])
        return found

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def find(self, path: str) -> Any | None:
        """The object, or None where there is none."""
        try:
            return self.call("GET", path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def lines(self, path: str) -> Iterator[bytes]:
        """Lines of an answer as they come, such as the events of a watch. Raises as `call` does."""
        server, pool = self._connection
        answer = pool.request("GET", server + path, preload_content=False)
        try:
            if answer.status >= 400:
                raise Refused(answer.status, answer.data.decode(errors="replace")[:_LONGEST_REFUSAL])
            rest = b""
            for piece in answer.stream(2**16):
                *whole, rest = (rest + piece).split(b"\n")
                yield from whole
        finally:
            answer.release_conn()

    def create(self, path: str, body: Any) -> Any:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        return self.call("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str, **options: Any) -> Any:
        return self.call("DELETE", path, options or None)

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Server-side apply of an object, by default into the namespace `default`. Raises Refused for a kind that is not served."""
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        plural, namespaced = self._served(version, kind)
        folder = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        path = f"{_root(version)}{folder}/{plural}/{metadata['name']}?{_APPLY}"
        self.call("PATCH", path, dict(manifest), content_type="application/apply-patch+yaml")

    def _served(self, version: str, kind: str) -> tuple[str, bool]:
        """The plural of a kind, and whether it is namespaced."""
        if (version, kind) not in self._kinds:
            for each in self.get(_root(version))["resources"]:
                if "/" not in each["name"]:
                    self._kinds[version, each["kind"]] = each["name"], each["namespaced"]
        if (version, kind) not in self._kinds:
            raise Refused(HTTPStatus.NOT_FOUND, f"{kind} of {version} is not served")
        return self._kinds[version, kind]

    @cached_property
    def _kinds(self) -> dict[tuple[str, str], tuple[str, bool]]:
        return {}

    def answers(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return str(self.call("GET", "/readyz")) == "ok"
        except (Refused, urllib3.exceptions.HTTPError, OSError):
            return False


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode(errors="replace")


def _root(version: str) -> str:
    """Where the kinds of an API version are listed."""
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
