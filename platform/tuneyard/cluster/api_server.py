"""The client's transport to the hub's API server: an answer, all pages of a list, or a stream of changes; failures as errors for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuneyard import __version__
from tuneyard.api import TuneyardError
from tuneyard.cluster.address import Address
from tuneyard.cluster.errors import Unreachable, explain
from tuneyard.kubernetes import (
    ApiError,
    Expired,
    Lines,
    Object,
    Request,
    error_of,
    group_path,
    pause_before,
    read_event,
    read_list,
    read_object,
)
from tuneyard.kubernetes.kinds import JOBSPEC

_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_PAGE = 500


class ApiServer:
    """One API server and one user. `configuration` is the Kubernetes library's, which renews credentials that a plugin makes.

    `impersonated`: headers of impersonation for each request, name and value; a name may stand several times.
    """

    def __init__(self, address: Address, configuration: Any, impersonated: Sequence[tuple[str, str]] = ()) -> None:
        import kubernetes.client

        configuration.retries = False  # `pause_before` decides about retries; the library would log each of them to the terminal
        self.address = address
        self._impersonated = tuple(impersonated)
        self._client = kubernetes.client.ApiClient(configuration)
        self._client.user_agent = f"tuneyard/{__version__}"

    def ask(self, request: Request) -> Object:
        """The answer to one request. Raises Unreachable, NotAllowed, NotInstalled, Missing, Taken, Overtaken, Refused."""
        try:
            return self._read_as(read_object if _is_stored(request) else _read_whole, self._answer(request))
        except ApiError as error:
            raise explain(error, request, self.address) from error

    def serves(self, group: str) -> bool:
        """Whether the API server knows a group of APIs; True where this user may not ask. Raises Unreachable."""
        answer = self._send("GET", group_path(group), {"Accept": "application/json"}, None, _READ_TIMEOUT_S)
        self._read(answer)
        return bool(answer.status != 404)

    def list(self, request: Request, *, limit: int | None = None) -> list[Object]:
        """All objects of a list, page by page, or the first `limit`. An object that is too deep or too large is reduced
        (`tuneyard.kubernetes.reading`).
        """
        found: list[Object] = []
        token, restarts = "", 1
        while True:
            page_of = {**request.parameters, "limit": str(_PAGE), **({"continue": token} if token else {})}
            try:
                read = read_list if _is_stored(request) else _read_whole
                page = self._read_as(read, self._answer(replace(request, parameters=page_of)))
            except Expired as error:  # the pages took minutes: the list starts again at its first page
                if not token or not restarts:
                    raise explain(error, request, self.address) from error
                found, token, restarts = [], "", restarts - 1
                continue
            except ApiError as error:
                raise explain(error, request, self.address) from error
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token or (limit is not None and len(found) >= limit):
                return found[:limit]

    def changes(self, request: Request, *, seconds: float) -> Iterator[tuple[str, Object]]:
        """Type (ADDED, MODIFIED, DELETED, BOOKMARK) and object of each event of a watch, for about `seconds`.

        Ends early when the connection does. Raises what `ask` raises, and Expired where the watch starts from a version that is too old.
        """
        import urllib3

        answer = self._send(request.method, request.target, request.headers, None, seconds + _CONNECT_TIMEOUT_S)
        lines = Lines()
        try:
            if not 200 <= answer.status < 300:
                raise error_of(answer.status, self._read(answer), answer.headers.get("Retry-After"))
            for chunk in answer.response.stream():
                for line in lines.feed(chunk):
                    yield read_event(line)
        except Expired:
            raise
        except ApiError as error:
            raise explain(error, request, self.address) from error
        except (urllib3.exceptions.HTTPError, ValueError):
            return  # the caller reads the object anew
        finally:
            answer.response.close()

    def _answer(self, request: Request) -> bytes:
        """The answer to a request, which is sent again where the server sheds load and names a time. Raises ApiError, Unreachable."""
        tries = 0
        while True:
            answer = self._send(request.method, request.target, request.headers, request.body, _READ_TIMEOUT_S)
            data = self._read(answer)
            if 200 <= answer.status < 300:
                return data
            error = error_of(answer.status, data, answer.headers.get("Retry-After"))
            tries += 1
            pause_s = pause_before(tries, error)
            if pause_s is None:
                raise error
            time.sleep(pause_s)

    def _send(self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, Any] | None, read_s: float) -> Any:
        import kubernetes.client
        import urllib3

        signed = self._client.param_serialize(method, target, header_params=dict(headers), auth_settings=["BearerToken"])
        method, url, plain_headers, _, _ = signed
        all_headers = urllib3.HTTPHeaderDict(plain_headers)
        for name, value in self._impersonated:
            # The API server reads UTF-8, and http.client sends text as Latin-1: these are the characters whose Latin-1 is that UTF-8.
            all_headers.add(name, value.encode().decode("latin-1"))
        try:
            return self._client.call_api(method, url, all_headers, body, _request_timeout=(_CONNECT_TIMEOUT_S, read_s))
        except (urllib3.exceptions.HTTPError, kubernetes.client.ApiException) as error:
            raise self._unreachable(error) from error

    def _read(self, answer: Any) -> bytes:
        import urllib3

        try:
            return bytes(answer.read())
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> TuneyardError:
        reason, hint = _reason(error)
        return Unreachable(f"{self.address.hub} does not answer: {reason}", f"{hint} (the address is from {self.address.source})")

    def _read_as(self, read: Callable[[bytes], Object], data: bytes) -> Object:
        try:
            return read(data)
        except (ValueError, RecursionError):
            words = f"{self.address.hub} answers, but not as a Kubernetes API server"
            raise Unreachable(words, f"check its address in {self.address.source}") from None


def _is_stored(request: Request) -> bool:
    """Whether the answer holds stored objects, which anybody may have written. Tables, logs and run history are made by servers."""
    return request.kind.group in (JOBSPEC.group, "") and not request.as_table and not request.subresource


def _read_whole(data: bytes) -> Object:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _reason(error: Exception) -> tuple[str, str]:
    """The reason of a failed connection, and the next step."""
    import urllib3.exceptions as failed

    text = " ".join(str(error).split())
    if "CERTIFICATE" in text.upper() or isinstance(error, failed.SSLError):
        return "its certificate is not the one that was expected", "check certificate-authority-data, and that the address is right"
    if isinstance(error, failed.NameResolutionError) or "Name or service not known" in text:
        return "its host name is unknown", "check the name, your network and VPN"
    if "Connection refused" in text:
        return "connection refused", "check that the hub is up, and its port"
    if isinstance(error, failed.ConnectTimeoutError):
        return f"no connection within {_CONNECT_TIMEOUT_S} s", "check your network and VPN"
    if isinstance(error, failed.ReadTimeoutError):
        return f"no answer within {_READ_TIMEOUT_S} s", "try again in a minute"
    if isinstance(error, failed.ProtocolError):
        return "the connection was lost", "try again in a minute"
    return text[:200] or type(error).__name__, "check your network, and that the hub is up"
