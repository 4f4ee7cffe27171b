"""The one object of its member's API server that an attempt may touch: its AttemptReport. Written by hand, because the pod needs three
requests, and the official client takes a second to load.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from pydantic import ValidationError

from tuneyard.api.attempt_report import AttemptState, StopRequest
from tuneyard.api.base import API_VERSION
from tuneyard.api.wire import read

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = urllib3.Timeout(connect=5.0, read=10.0)
_NOT_FOUND, _CONFLICT = 404, 409


def _stop_of(found: Any) -> StopRequest:
    """A wish to stop is one, also for a reason that this version does not know."""
    try:
        return read(StopRequest, found).value
    except ValidationError:
        return StopRequest(reason="Preempted")


class ApiUnavailable(Exception):
    """The API server did not do what it was asked; it may, later."""


@dataclass(frozen=True)
class ApiServer:
    """Where it is, and who we are. The token is read at each request: the kubelet replaces it every hour."""

    url: str
    ca_file: Path
    token_file: Path

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ) -> ApiServer | None:
        """None outside Kubernetes, and for pods without a service account."""
        host = environment.get("KUBERNETES_SERVICE_HOST")
        if not host or not (_ACCOUNT / "token").exists():
            return None
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}", _ACCOUNT / "ca.crt", _ACCOUNT / "token")


class ReportObject:
    """The AttemptReport `name` in `namespace`. Used by one thread."""

    def __init__(self, server: ApiServer, namespace: str, name: str, labels: Mapping[str, str] | None = None) -> None:
        self._labels = labels or {}
        self._server = server
        self._name = name
        self._collection = f"{server.url}/apis/{API_VERSION}/namespaces/{namespace}/attemptreports"
        self._pool = urllib3.PoolManager(ca_certs=str(server.ca_file), timeout=_TIMEOUT, retries=False)

    def put(self, state: AttemptState) -> StopRequest | None:
        """Make `state` the status of the object, which is created where it is not there. Returns what the hub wants, if anything.

        Raises ApiUnavailable.
        """
        # What is longer than a report may hold is cut: an API server would refuse all of it, and the attempt would count as silent.
        fitting = read(AttemptState, state.model_dump(mode="json", by_alias=True)).value
        # None stays in: in a merge patch it removes what the state before had.
        patch = {"status": fitting.model_dump(mode="json", by_alias=True)}
        status, answer = self._send("PATCH", f"{self._collection}/{self._name}/status", patch)
        if status == _NOT_FOUND:
            self._create()
            status, answer = self._send("PATCH", f"{self._collection}/{self._name}/status", patch)
        if status >= 300:
            raise ApiUnavailable(f"{status}: {answer.get('message', 'no message')}")
        stop = (answer.get("spec") or {}).get("stop")
        return _stop_of(stop) if stop else None

    def _create(self) -> None:
        report = {
            "apiVersion": API_VERSION,
            "kind": "AttemptReport",
            "metadata": {"name": self._name, "labels": dict(self._labels)},
            "spec": {},
        }
        status, answer = self._send("POST", self._collection, report)
        if status >= 300 and status != _CONFLICT:
            raise ApiUnavailable(f"{status}: {answer.get('message', 'no message')}")

    def _send(self, method: str, url: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            headers = {"Authorization": f"Bearer {self._server.token_file.read_text().strip()}", "Content-Type": content_type}
            response = self._pool.request(method, url, body=json.dumps(body).encode(), headers=headers)
            answer = json.loads(response.data) if response.data else {}
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error
        return response.status, answer if isinstance(answer, dict) else {}
