"""Requests to the hub's API server: one answer, or a stream of changes; every failure as an error for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard import __version__
from tuneyard.api import TuneyardError
from tuneyard.cluster.connection import CONNECT_TIMEOUT_S, Address
from tuneyard.cluster.errors import Unreachable, error_of
from tuneyard.cluster.request import Discovery, Request

_READ_TIMEOUT_S = 60
_BUSY, _BUSY_TRIES, _LONGEST_PAUSE_S = 429, 4, 10.0
_PAGE = 500

Object = dict[str, Any]


class ApiServer:
    """One API server and one user. `configuration` is the Kubernetes library's, which renews credentials that a plugin makes."""

    def __init__(self, address: Address, configuration: Any) -> None:
        import kubernetes.client

        configuration.retries = False  # what is worth a second try is decided here, and the library would log each try to the terminal
        self.address = address
        self._client = kubernetes.client.ApiClient(configuration)
        self._client.user_agent = f"tuneyard/{__version__}"

    def ask(
        self,
        request: Request,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """The answer to one request. Raises Unreachable, NotAllowed, NotInstalled, Missing, Taken, Overtaken, Refused."""
        for tries in range(_BUSY_TRIES):
            answer = self._send(request, body, query, content_type, _READ_TIMEOUT_S)
            text = self._read(answer)
            if answer.status != _BUSY or tries == _BUSY_TRIES - 1:
                break
            # The server sheds load before it looks at a request: asking again is safe for every verb.
            time.sleep(min(float(answer.headers.get("Retry-After") or 1), _LONGEST_PAUSE_S))
        if answer.status >= 400:
            raise error_of(answer.status, text, request, self.address)
        return self._object(text)

    def serves(self, group: str) -> bool:
        """Whether the API server knows a group of APIs; True where it does not let this user ask. Raises Unreachable."""
        answer = self._send(Discovery(group), None, None, "application/json", _READ_TIMEOUT_S)
        self._read(answer)
        return bool(answer.status != 404)

    def list(self, request: Request, query: Mapping[str, str] | None = None, *, limit: int | None = None) -> list[Object]:
        """All objects of a kind, page by page, or the first `limit`."""
        found: list[Object] = []
        token = ""
        while True:
            page = self.ask(request, query={**(query or {}), "limit": str(_PAGE), **({"continue": token} if token else {})})
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token or (limit is not None and len(found) >= limit):
                return found[:limit]

    def changes(self, request: Request, query: Mapping[str, str], *, seconds: float) -> Iterator[tuple[str, Object]]:
        """`(ADDED | MODIFIED | DELETED | ERROR, object)` as they happen, for about `seconds`; ends early when the connection does."""
        import urllib3

        watching = {**query, "watch": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        answer = self._send(request, None, watching, "application/json", seconds + CONNECT_TIMEOUT_S)
        try:
            if answer.status >= 400:
                raise error_of(answer.status, self._read(answer), request, self.address)
            rest = b""
            for chunk in answer.response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = self._object(line.decode())
                    yield event["type"], event["object"]
        except urllib3.exceptions.HTTPError:
            return
        finally:
            answer.response.close()

    def _send(
        self,
        request: Request | Discovery,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        content_type: str,
        read_s: float,
    ) -> Any:
        import kubernetes.client
        import urllib3

        headers = {"Accept": "application/json", "Content-Type": content_type}
        wire = self._client.param_serialize(
            request.method, request.path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )
        method, url, all_headers, _, _ = wire
        try:
            return self._client.call_api(method, url, all_headers, body, _request_timeout=(CONNECT_TIMEOUT_S, read_s))
        except (urllib3.exceptions.HTTPError, kubernetes.client.ApiException) as error:
            raise self._unreachable(error) from error

    def _read(self, answer: Any) -> str:
        import urllib3

        try:
            return bytes(answer.read()).decode(errors="replace")
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> TuneyardError:
        reason, hint = _reason(error)
        return Unreachable(f"{self.address.hub} does not answer: {reason}", f"{hint} (the address is from {self.address.source})")

    def _object(self, text: str) -> Object:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unreachable(
                f"{self.address.hub} answers, but not as a Kubernetes API server", f"check its address in {self.address.source}"
            )
        return found


def _reason(error: Exception) -> tuple[str, str]:
    """What keeps the connection from being made, and what to do about it."""
    import urllib3.exceptions as failed

    text = " ".join(str(error).split())
    if "CERTIFICATE" in text.upper() or isinstance(error, failed.SSLError):
        return "its certificate is not the one that was expected", "check certificate-authority-data, and that the address is right"
    if isinstance(error, failed.NameResolutionError) or "Name or service not known" in text:
        return "its host name is unknown", "check the name, your network and VPN"
    if "Connection refused" in text:
        return "connection refused", "check that the hub is up, and its port"
    if isinstance(error, failed.ConnectTimeoutError):
        return f"no connection within {CONNECT_TIMEOUT_S} s", "check your network and VPN"
    if isinstance(error, failed.ReadTimeoutError):
        return f"no answer within {_READ_TIMEOUT_S} s", "try again in a minute"
    if isinstance(error, failed.ProtocolError):
        return "the connection was lost", "try again in a minute"
    return text[:200] or type(error).__name__, "check your network, and that the hub is up"
