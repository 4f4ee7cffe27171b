"""A connection to one API server: JSON in, JSON out, at a rate and a number of requests at once that are set and not left to defaults."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes_asyncio import client, config
from yarl import URL

from tuneyard_operators.kube.errors import Missing, Unreachable, error_of
from tuneyard_operators.kube.kinds import Kind
from tuneyard_operators.kube.kubeconfig import Unusable, inline_kubeconfig
from tuneyard_operators.kube.rate import Rate

MERGE_PATCH = "application/merge-patch+json"
_WHOLE = {"Accept": "application/json"}
_METADATA_ONLY = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
_QUIET_S = 90.0
"""A server sends a bookmark about once a minute: silence of a watch for so long means a dead connection."""
_LONGEST_LINE = 2**22
"""Bytes of one event of a watch: etcd takes objects of 1.5 MiB."""
Observe = Callable[[str, str, int, float], None]
"""Verb, resource (`jobspecs/status`; empty for what is none), status (0 where no answer came) and seconds of each request."""


class Connection:
    """Requests to one API server. Every method raises an ApiError of `kube.errors`, and nothing else, where a request fails.

    `may_write` is asked before each request that is no GET: one that it forbids is not sent, and fails as Unreachable.
    """

    def __init__(
        self,
        configuration: client.Configuration,
        *,
        qps: float = 500.0,
        at_once: int = 64,
        timeout_s: float = 20.0,
        observe: Observe = lambda _verb, _resource, _status, _seconds: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._configuration = configuration
        # Watches hold a connection each, beside the requests.
        self._session = _session(configuration, connections=at_once + 16)
        self._transport = _transport(configuration)
        self._rate = Rate(qps)
        self._slots = asyncio.Semaphore(at_once)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._watch_timeout = aiohttp.ClientTimeout(sock_connect=timeout_s, sock_read=_QUIET_S)
        self._observe = observe
        self.may_write = may_write

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    async def close(self) -> None:
        await self._session.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        return await self._call("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> dict[str, Any]:
        """The whole list object: `items`, and `metadata.resourceVersion` to watch from."""
        return await self._call("GET", kind.path(namespace), {"labelSelector": labels} if labels else None)

    async def create(
        self, kind: Kind, namespace: str | None, body: Mapping[str, Any], *, dry_run: bool = False, brief: bool = False
    ) -> dict[str, Any]:
        """The object as it is now, or, `brief`, its metadata alone: what is not asked for is neither sent nor read."""
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        return await self._call("POST", kind.path(namespace), {"dryRun": "All"} if dry_run else None, whole, brief=brief)

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = "", brief: bool = False
    ) -> dict[str, Any]:
        """JSON merge patch; with `metadata.resourceVersion` in `body` it fails as Conflict where the object has changed.

        Answers as `create` does.
        """
        return await self._call("PATCH", kind.path(namespace, name, subresource=subresource), None, body, brief=brief)

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("PUT", kind.path(namespace, name), None, body)

    async def delete(self, kind: Kind, namespace: str | None, name: str) -> bool:
        """True if it is gone; False if its finalizers keep it for a while. What it owns goes in the background."""
        try:
            answer = await self._call("DELETE", kind.path(namespace, name), {"propagationPolicy": "Background"}, brief=True)
        except Missing:
            return True
        return answer.get("kind") == "Status" or not answer.get("metadata", {}).get("finalizers")

    async def raw(self, path: str) -> bytes:
        """Body of a GET that is not JSON, such as a pod's log, or `/readyz`."""
        async with self._request("GET", path) as response:
            return await response.read()

    async def watch(
        self, kind: Kind, namespace: str | None, *, since: str, labels: str = "", timeout_s: int = 300
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Type (ADDED, MODIFIED, DELETED, BOOKMARK) and object of each event after `since`. Ends when the server ends it.

        Raises Expired where `since` is too old, Unreachable where the connection breaks or nothing is heard for long.
        """
        parameters = {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        if labels:
            parameters["labelSelector"] = labels
        async with self._request("GET", kind.path(namespace), parameters, timeout=self._watch_timeout, verb="WATCH") as response:
            try:
                async for line in _lines(response.content):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise error_of(int(status.get("code", 500)), msgspec.json.encode(status))
                    yield event["type"], event["object"]
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise Unreachable(0, f"the watch of {kind.plural} broke: {_words(error)}") from error

    async def _call(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        brief: bool = False,
    ) -> dict[str, Any]:
        async with self._request(method, path, parameters, body, brief=brief) as response:
            data = await response.read()
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except ValueError as error:
            raise Unreachable(0, f"{self.server} answers with something else than JSON: {error}") from error

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: aiohttp.ClientTimeout | None = None,
        verb: str = "",
        brief: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = dict(_METADATA_ONLY if brief else _WHOLE)
        if body is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        address = f"{self.server}{path}?{urlencode(parameters)}" if parameters else self.server + path
        await self._rate.wait()
        loop = asyncio.get_running_loop()
        status, began = 0, loop.time()
        slot = self._slots if timeout is None else _Free()
        async with slot:
            try:
                await self._sign(headers)
                if method != "GET" and not self.may_write():
                    raise Unreachable(0, "not written: this replica may not lead any more")
                response = await self._session.request(
                    method,
                    URL(address, encoded=True),
                    data=None if body is None else msgspec.json.encode(body),
                    headers=headers,
                    allow_redirects=False,
                    timeout=timeout or self._timeout,
                    **self._transport,
                )
                async with response:
                    status = response.status
                    if not 200 <= status < 300:
                        raise error_of(status, _without_credential(await response.read(), headers))
                    yield response
            except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
                raise Unreachable(0, f"{self.server} does not answer: {_words(error)}") from error
            except config.ConfigException as error:
                raise Unreachable(401, f"the credentials for {self.server} cannot be used: {error}") from error
            finally:
                self._observe(verb or method, _resource(path), status, loop.time() - began)

    async def _sign(self, headers: dict[str, str]) -> None:
        """Add the token, where there is one: it may have been renewed since the last request."""
        for setting in (await self._configuration.auth_settings()).values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]


def _session(configuration: client.Configuration, *, connections: int) -> aiohttp.ClientSession:
    """As kubernetes-asyncio makes it, but that ~/.netrc and the environment are not read again, in a thread, for every single request."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=context, keepalive_timeout=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "tuneyard-hub"},
        read_bufsize=2**21,
    )


def _transport(configuration: client.Configuration) -> dict[str, Any]:
    """Server name and proxy of every request: the kubeconfig's, else the environment's."""
    found: dict[str, Any] = {}
    if configuration.tls_server_name:
        found["server_hostname"] = configuration.tls_server_name
    address = urlsplit(configuration.host)
    host, scheme = str(address.hostname or ""), str(address.scheme)
    by_environment = None if proxy_bypass(host) else getproxies().get(scheme)
    if configuration.proxy or by_environment:
        found["proxy"] = configuration.proxy or by_environment
    if configuration.proxy and configuration.proxy_headers:
        found["proxy_headers"] = configuration.proxy_headers
    return found


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, as many at once as have come. Raises ValueError on one that does not end."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"an event is longer than {_LONGEST_LINE} bytes")


class _Free:
    """In place of a slot, for watches: they last for minutes."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_error: object) -> None: ...


def _without_credential(body: bytes, headers: Mapping[str, str]) -> bytes:
    """An answer that repeats its request, as some proxies do, without the token: it goes into statuses that others read."""
    found = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    credential = found.rpartition(" ")[2].encode()
    return body.replace(credential, b"***") if credential else body


def _resource(path: str) -> str:
    """Plural of the kind that a path is of, with the subresource: `jobspecs/status`."""
    _, root, *parts = path.split("/")
    if root not in ("api", "apis"):
        return ""
    parts = parts[1 if root == "api" else 2 :]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join((parts[0], *parts[2:3]))


def _words(error: BaseException) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


async def from_kubeconfig(path: str | None = None, context: str | None = None, **options: Any) -> Connection:
    """Connection by a kubeconfig file (default: $KUBECONFIG, ~/.kube/config). Raises ConfigException."""
    configuration = client.Configuration()
    await config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
    return Connection(configuration, **options)


async def from_kubeconfig_text(text: str, **options: Any) -> Connection:
    """Connection by the content of a kubeconfig, as a Secret holds it.

    Raises Unreachable where it is none, or holds more than a server and inline credentials; the message quotes none of them.
    """
    configuration = client.Configuration()
    try:
        await config.load_kube_config_from_dict(inline_kubeconfig(text), client_configuration=configuration)
        return Connection(configuration, **options)
    except Unusable as error:
        raise Unreachable(0, f"the kubeconfig cannot be used: {error}") from error
    except (config.ConfigException, ValueError, OSError) as error:  # ssl.SSLError is an OSError
        raise Unreachable(0, f"the kubeconfig cannot be used: its certificates or key cannot be read ({type(error).__name__})") from error


def in_cluster(**options: Any) -> Connection:
    """Connection by the service account of this pod. Raises ConfigException outside of one."""
    configuration = client.Configuration()
    config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return Connection(configuration, **options)
