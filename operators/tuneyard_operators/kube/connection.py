"""A connection to one API server: JSON in, JSON out, at a rate and a number of requests at once that are set and not left to defaults."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import yaml
from kubernetes_asyncio import client, config

from tuneyard_operators.kube.errors import Unreachable, error_of
from tuneyard_operators.kube.kinds import Kind
from tuneyard_operators.kube.rate import Rate

MERGE_PATCH = "application/merge-patch+json"
Observe = Callable[[str, int, float], None]
"""Verb, status (0 where no answer came) and seconds of each request."""


class Connection:
    """Requests to one API server. Every method raises an ApiError of `kube.errors`, and nothing else, where a request fails."""

    def __init__(
        self,
        configuration: client.Configuration,
        *,
        qps: float = 500.0,
        at_once: int = 64,
        timeout_s: float = 20.0,
        observe: Observe = lambda _verb, _status, _seconds: None,
    ) -> None:
        configuration.connection_pool_maxsize = at_once + 16  # watches hold a connection each, beside the requests
        self._api = client.ApiClient(configuration)
        self._configuration = configuration
        self._rate = Rate(qps)
        self._slots = asyncio.Semaphore(at_once)
        self._timeout_s = timeout_s
        self._observe = observe

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        return await self._call("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> dict[str, Any]:
        """The whole list object: `items`, and `metadata.resourceVersion` to watch from."""
        return await self._call("GET", kind.path(namespace), {"labelSelector": labels} if labels else None)

    async def create(self, kind: Kind, namespace: str | None, body: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        return await self._call("POST", kind.path(namespace), {"dryRun": "All"} if dry_run else None, whole)

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """JSON merge patch; with `metadata.resourceVersion` in `body` it fails as Conflict where the object has changed."""
        return await self._call("PATCH", kind.path(namespace, name, subresource=subresource), None, body)

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("PUT", kind.path(namespace, name), None, body)

    async def delete(self, kind: Kind, namespace: str | None, name: str) -> bool:
        """False if it was gone already. What it owns goes in the background."""
        from tuneyard_operators.kube.errors import Missing

        try:
            await self._call("DELETE", kind.path(namespace, name), {"propagationPolicy": "Background"})
        except Missing:
            return False
        return True

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
        # A server sends a bookmark about once a minute: silence for longer than the watch itself means a dead connection.
        quiet = aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=90.0)
        async with self._request("GET", kind.path(namespace), parameters, timeout=quiet, verb="WATCH") as response:
            try:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise error_of(int(status.get("code", 500)), json.dumps(status).encode())
                    yield event["type"], event["object"]
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise Unreachable(0, f"the watch of {kind.plural} broke: {_words(error)}") from error

    async def _call(
        self, method: str, path: str, parameters: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        async with self._request(method, path, parameters, body) as response:
            result: dict[str, Any] = json.loads(await response.read())
            return result

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
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": "application/json", "Content-Type": MERGE_PATCH if method == "PATCH" else "application/json"}
        await self._rate.wait()
        loop = asyncio.get_running_loop()
        status, began = 0, loop.time()
        slot = self._slots if timeout is None else _Free()
        async with slot:
            try:
                await self._api.update_params_for_auth(headers, [], ["BearerToken"])
                response = await self._session.request(
                    method,
                    self.server + path,
                    params=parameters,
                    data=None if body is None else json.dumps(body, separators=(",", ":")),
                    headers=headers,
                    timeout=timeout or aiohttp.ClientTimeout(total=self._timeout_s),
                    **self._transport(),
                )
                async with response:
                    status = response.status
                    if not 200 <= status < 300:
                        raise error_of(status, await response.read())
                    yield response
            except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
                raise Unreachable(0, f"{self.server} does not answer: {_words(error)}") from error
            except config.ConfigException as error:
                raise Unreachable(401, f"the credentials for {self.server} cannot be used: {error}") from error
            finally:
                self._observe(verb or method, status, loop.time() - began)

    @property
    def _session(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = self._api.rest_client.pool_manager
        return session

    def _transport(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._configuration.tls_server_name:
            found["server_hostname"] = self._configuration.tls_server_name
        if self._configuration.proxy:
            found["proxy"] = self._configuration.proxy
        return found


class _Free:
    """In place of a slot, for watches: they last for minutes."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_error: object) -> None: ...


def _words(error: BaseException) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


async def from_kubeconfig(path: str | None = None, context: str | None = None, **options: Any) -> Connection:
    """Connection by a kubeconfig file (default: $KUBECONFIG, ~/.kube/config). Raises ConfigException."""
    configuration = client.Configuration()
    await config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
    return Connection(configuration, **options)


async def from_kubeconfig_text(text: str, **options: Any) -> Connection:
    """Connection by the content of a kubeconfig, as a Secret holds it. Raises Unreachable where it is none."""
    configuration = client.Configuration()
    try:
        document = yaml.safe_load(text)
        if not isinstance(document, dict):
            raise config.ConfigException("it is not a YAML mapping")
        await config.load_kube_config_from_dict(document, client_configuration=configuration)
    except (config.ConfigException, yaml.YAMLError, KeyError, TypeError, ValueError, OSError) as error:
        raise Unreachable(0, f"the kubeconfig cannot be used: {error}") from error
    return Connection(configuration, **options)


def in_cluster(**options: Any) -> Connection:
    """Connection by the service account of this pod. Raises ConfigException outside of one."""
    configuration = client.Configuration()
    config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return Connection(configuration, **options)
