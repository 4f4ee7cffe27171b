"""A connection to one API server: sends and returns JSON, within an explicit rate and an explicit number of concurrent requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes_asyncio import client, config
from yarl import URL

from tuneyard.kubernetes import (
    ApiError,
    Decode,
    Kind,
    Lines,
    Missing,
    Object,
    Request,
    Unintelligible,
    Unreachable,
    create_object,
    delete_object,
    error_of,
    get_object,
    list_objects,
    patch_object,
    pause_before,
    read_event,
    read_list,
    read_object,
    replace_object,
    watch_objects,
)
from tuneyard_operators.kube.expiry import expiry_s
from tuneyard_operators.kube.kubeconfig import Unusable, inline_kubeconfig
from tuneyard_operators.kube.rate import Rate

_QUIET_S = 90.0
"""Longest silence of a live watch: a server sends a bookmark about once a minute."""
_FIRST_PAGE, _LONGEST_PAGE, _PAGE_BYTES = 16, 500, 4 * 2**20
"""Objects of the first page of a list and of the longest, and the bytes that pages aim at: their number follows the size of the objects."""
Observe = Callable[[str, str, int, float], None]
"""Method (or WATCH), resource (`jobspecs/status`; empty for a bare path), status (0 without an answer) and seconds of each request."""


class Connection:
    """Requests to one API server. A method whose request fails raises an ApiError, and no other error.

    `may_write` is called before each request that writes. A request that it forbids is not sent, and fails as Unreachable.
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
        expires_s: float | None = None,
    ) -> None:
        self.expires_s = expires_s
        """When its credentials expire, in seconds since 1970; None: they do not say."""
        self._configuration = configuration
        # Each watch holds a connection of its own, beside those of the requests.
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

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return await self._object(get_object(kind, namespace, name))

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> Object:
        """The whole list, as `pages` has it."""
        pages = [page async for page in self.pages(kind, namespace, labels=labels)]
        return {**pages[-1], "items": [item for page in pages for item in page["items"]]}

    async def pages(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> AsyncIterator[Object]:
        """The pages of a list: `items`, each whole or reduced (`tuneyard.kubernetes.reading`), and `metadata.resourceVersion` of a watch.

        Memory therefore follows what is kept of the objects and not what was sent. Raises Expired if the pages take minutes.
        """
        token, limit = "", _FIRST_PAGE
        while True:
            data = await self._ask(list_objects(kind, namespace, labels=labels, limit=limit, token=token))
            page = self._read(read_list, data)
            size, token = len(data), page["metadata"].get("continue") or ""
            yield page
            if not token:
                return
            limit = max(1, min(_LONGEST_PAGE, 4 * limit, limit * _PAGE_BYTES // size))

    async def create(
        self, kind: Kind, namespace: str | None, body: Mapping[str, Any], *, dry_run: bool = False, brief: bool = False
    ) -> Object:
        """The new object, or its metadata alone if `brief`. Raises AlreadyExists if an object has this name."""
        return await self._object(create_object(kind, namespace, body, dry_run=dry_run, metadata_only=brief))

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = "", brief: bool = False
    ) -> Object:
        """The object after a JSON merge patch, or its metadata alone if `brief`.

        Raises Conflict if `body` holds a `metadata.resourceVersion` that is not the newest.
        """
        return await self._object(patch_object(kind, namespace, name, body, subresource=subresource, metadata_only=brief))

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        return await self._object(replace_object(kind, namespace, name, body))

    async def delete(self, kind: Kind, namespace: str | None, name: str) -> bool:
        """Delete an object. True if it is gone; False if finalizers keep it. Kubernetes deletes its dependents in the background."""
        try:
            answer = await self._object(delete_object(kind, namespace, name))
        except Missing:
            return True
        return answer.get("kind") == "Status" or not answer.get("metadata", {}).get("finalizers")

    async def raw(self, path: str) -> bytes:
        """Body of one GET of a path, such as `/readyz`."""
        async with self._send("GET", path, {}, None, resource="", timeout=self._timeout) as response:
            return await response.read()

    async def watch(
        self, kind: Kind, namespace: str | None, *, since: str, labels: str = "", timeout_s: int = 300
    ) -> AsyncIterator[tuple[str, Object]]:
        """Type (ADDED, MODIFIED, DELETED, BOOKMARK) and object of each event after `since`. Ends when the server ends it.

        Raises Expired if `since` is too old, Unreachable if the connection breaks or is silent for too long, and Unintelligible for what
        is no event.
        """
        request = watch_objects(kind, namespace, since=since, labels=labels, timeout_s=timeout_s)
        async with self._send("WATCH", request.target, request.headers, None, resource=request.resource, timeout=None) as response:
            lines = Lines()
            try:
                async for chunk in response.content.iter_any():
                    for line in lines.feed(chunk):
                        yield read_event(line, msgspec.json.decode)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise Unreachable(0, f"the watch of {kind.plural} broke: {_words(error)}") from error
            except ValueError as error:
                raise Unintelligible(0, f"{self.server} sent what is no event of {kind.plural}: {error}") from error

    async def _object(self, request: Request) -> Object:
        return self._read(read_object, await self._ask(request))

    def _read(self, read: Callable[[bytes, Decode], Object], data: bytes) -> Object:
        try:
            return read(data, msgspec.json.decode)
        except ValueError as error:
            raise Unintelligible(0, f"{self.server} does not answer with JSON: {error}") from error

    async def _ask(self, request: Request) -> bytes:
        """The answer to a request. The request is repeated if the server sheds load and names a time."""
        tries = 0
        while True:
            try:
                return await self._answer(request)
            except ApiError as error:
                tries += 1
                pause_s = pause_before(tries, error)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _answer(self, request: Request) -> bytes:
        body = None if request.body is None else msgspec.json.encode(request.body)
        sent = self._send(request.method, request.target, request.headers, body, resource=request.resource, timeout=self._timeout)
        async with sent as response:
            return await response.read()

    @asynccontextmanager
    async def _send(
        self, verb: str, target: str, headers: dict[str, str], body: bytes | None, *, resource: str, timeout: aiohttp.ClientTimeout | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request once, within rate and slots. `timeout`: None for a watch, which lasts for minutes and holds no slot."""
        await self._rate.wait()
        loop = asyncio.get_running_loop()
        status, began = 0, loop.time()
        async with self._slots if timeout is not None else nullcontext():
            try:
                await self._sign(headers)
                if verb not in ("GET", "WATCH") and not self.may_write():
                    raise Unreachable(0, "not written: this replica may no longer be the leader")
                response = await self._session.request(
                    "GET" if verb == "WATCH" else verb,
                    URL(self.server + target, encoded=True),
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=timeout or self._watch_timeout,
                    **self._transport,
                )
                async with response:
                    status = response.status
                    if not 200 <= status < 300:
                        refusal = _without_credential(await response.read(), headers)
                        raise error_of(status, refusal, response.headers.get("Retry-After"))
                    yield response
            except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
                raise Unreachable(0, f"{self.server} does not answer: {_words(error)}") from error
            except config.ConfigException as error:
                raise Unreachable(401, f"the credentials for {self.server} cannot be used: {error}") from error
            finally:
                self._observe(verb, resource, status, loop.time() - began)

    async def _sign(self, headers: dict[str, str]) -> None:
        """Add the token, if there is one. It is read for each request because it may have been renewed."""
        for setting in (await self._configuration.auth_settings()).values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]


def _session(configuration: client.Configuration, *, connections: int) -> aiohttp.ClientSession:
    """A session like kubernetes-asyncio's, except that it does not read ~/.netrc and the environment, in a thread, for every request."""
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


def _without_credential(body: bytes, headers: Mapping[str, str]) -> bytes:
    """An error body without the token. Some proxies repeat the request in it, and the hub writes it into statuses that others read."""
    found = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    credential = found.rpartition(" ")[2].encode()
    return body.replace(credential, b"***") if credential else body


def _words(error: BaseException) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


async def from_kubeconfig(path: str | None = None, context: str | None = None, **options: Any) -> Connection:
    """Connect by a kubeconfig file (default: $KUBECONFIG, ~/.kube/config). Raises ConfigException."""
    configuration = client.Configuration()
    await config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
    return Connection(configuration, **options)


async def from_kubeconfig_text(text: str, **options: Any) -> Connection:
    """Connect by the text of a kubeconfig from a Secret.

    Raises Unreachable if the text is no kubeconfig, or holds more than a server and inline credentials. The message quotes no value.
    """
    configuration = client.Configuration()
    try:
        kubeconfig = inline_kubeconfig(text)
        await config.load_kube_config_from_dict(kubeconfig, client_configuration=configuration)
        return Connection(configuration, expires_s=expiry_s(kubeconfig["users"][0]["user"]), **options)
    except Unusable as error:
        raise Unreachable(0, f"the kubeconfig cannot be used: {error}") from error
    except (config.ConfigException, ValueError, OSError) as error:  # ssl.SSLError is an OSError
        raise Unreachable(0, f"the kubeconfig cannot be used: its certificates or key cannot be read ({type(error).__name__})") from error


def in_cluster(**options: Any) -> Connection:
    """Connect by the service account of this pod. Raises ConfigException outside of a pod."""
    configuration = client.Configuration()
    config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return Connection(configuration, **options)
