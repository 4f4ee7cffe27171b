"""The pod's transport to its member's API server, for one object: its AttemptReport.

It uses urllib3 directly: the pod sends only a few kinds of request, and the official client takes a second to load.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import urllib3
from pydantic import ValidationError

from tuneyard.api.attempt_report import AttemptState, StopRequest
from tuneyard.api.moments import written_ms
from tuneyard.api.wire import read
from tuneyard.kubernetes import (
    AlreadyExists,
    ApiError,
    Missing,
    Object,
    Request,
    create_object,
    error_of,
    patch_object,
    pause_before,
    read_object,
)
from tuneyard.kubernetes.kinds import ATTEMPT_REPORT

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = urllib3.Timeout(connect=5.0, read=10.0)


def _stop_of(found: Any) -> StopRequest:
    """The stop request in a report. A reason that this version does not know counts as Preempted."""
    try:
        return read(StopRequest, found).value
    except ValidationError:
        return StopRequest(reason="Preempted")


class ApiUnavailable(Exception):
    """A request to the API server failed; a later one may succeed."""


@dataclass(frozen=True)
class ApiServer:
    """Address, certificate authority and token of an API server. Each request reads the token anew: the kubelet replaces it every hour."""

    url: str
    ca_file: Path
    token_file: Path

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ) -> ApiServer | None:
        """The API server of this pod's cluster; None outside Kubernetes, and for pods without a service account."""
        host = environment.get("KUBERNETES_SERVICE_HOST")
        if not host or not (_ACCOUNT / "token").exists():
            return None
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}", _ACCOUNT / "ca.crt", _ACCOUNT / "token")


class ReportObject:
    """The AttemptReport `name` in `namespace`. Used by one thread."""

    def __init__(self, server: ApiServer, namespace: str, name: str, labels: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._namespace = namespace
        self._name = name
        self._labels = labels or {}
        self._pool = urllib3.PoolManager(ca_certs=str(server.ca_file), timeout=_TIMEOUT, retries=False)

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str], server: ApiServer | None = None) -> ReportObject | None:
        """The report of the attempt that `environment` describes; None outside Kubernetes."""
        server = server or ApiServer.of_this_pod(environment)
        name, namespace = environment.get("TUNEYARD_ATTEMPT_NAME"), environment.get("TUNEYARD_NAMESPACE")
        labels = json.loads(environment.get("TUNEYARD_LABELS", "{}"))
        return cls(server, namespace, name, labels) if server and name and namespace else None

    def put(self, state: AttemptState) -> StopRequest | None:
        """Store `state` as the status of the object, and create the object if it is missing. Returns the hub's stop request, if any.

        Raises ApiUnavailable.
        """
        # `read` cuts fields that are too long: the API server would refuse the whole report, and the attempt would count as silent.
        fitting = read(AttemptState, state.model_dump(mode="json", by_alias=True)).value
        # None stays in the patch: in a merge patch it removes the field's earlier value.
        status = fitting.model_dump(mode="json", by_alias=True)
        try:
            try:
                answer = self._patch(status)
            except Missing:
                self._create()
                answer = self._patch(status)
        except ApiError as error:
            raise ApiUnavailable(str(error)) from error
        stop = (answer.get("spec") or {}).get("stop")
        return _stop_of(stop) if stop else None

    def note_request(self, at: datetime) -> str | None:
        """Tell the hub that a request has come for the attempt's server, which sleeps. Returns what the hub says of the next server; None:
        there is no report, so the hub waits for no request. Raises ApiUnavailable."""
        try:
            answer = self._patch({"askedAt": written_ms(at)})
        except Missing:
            return None
        except ApiError as error:
            raise ApiUnavailable(str(error)) from error
        if "askedAt" not in (answer.get("status") or {}):
            raise ApiUnavailable("the member's kind AttemptReport is older, and knows no requests: upgrade the chart tuneyard-member")
        return str((answer.get("spec") or {}).get("standing") or "")

    def _patch(self, status: Mapping[str, Any]) -> Object:
        return self._ask(patch_object(ATTEMPT_REPORT, self._namespace, self._name, {"status": status}, subresource="status"))

    def _create(self) -> None:
        body = {"metadata": {"name": self._name, "labels": dict(self._labels)}, "spec": {}}
        try:
            self._ask(create_object(ATTEMPT_REPORT, self._namespace, body))
        except AlreadyExists:
            return

    def _ask(self, request: Request) -> Object:
        """The answer to a request. The request is repeated if the server sheds load and names a time."""
        tries = 0
        while True:
            try:
                return self._answer(request)
            except ApiError as error:
                tries += 1
                pause_s = pause_before(tries, error)
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def _answer(self, request: Request) -> Object:
        try:
            headers = {**request.headers, "Authorization": f"Bearer {self._server.token_file.read_text().strip()}"}
            body = json.dumps(request.body).encode()
            response = self._pool.request(request.method, self._server.url + request.target, body=body, headers=headers)
            data = response.data
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error
        if not 200 <= response.status < 300:
            raise error_of(response.status, data, response.headers.get("Retry-After"))
        try:
            return read_object(data)
        except ValueError as error:
            raise ApiUnavailable(f"the answer is no JSON: {error}") from error
