"""Sends requests to an endpoint over HTTP, and reads the whole reply. Connections are kept for later requests.

A key is sent in the header Authorization alone, and never to another host: redirects are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from tuneyard.api import Endpoint
from tuneyard.api.secrets import HIDDEN
from tuneyard.scoring.endpoint.reply import Reply, TryAgain, printable

_MOST_BYTES = 16 * 1024**2
"""Of one reply."""
_CONNECT_S = 30.0
_SHORTEST_SECRET = 8
"""Shorter keys are words such as EMPTY, which servers without a key ask for and answers may hold."""


class Sender:
    """For one event loop. `key`: the API key."""

    def __init__(self, endpoint: Endpoint, key: str | None) -> None:
        self._endpoint, self._key = endpoint, key
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._session: aiohttp.ClientSession | None = None

    async def send(self, path: str, body: dict[str, Any], read: Callable[[int, Mapping[str, str], bytes], Reply]) -> Reply:
        """Post `body` to a path below the endpoint's URL. `read`: status, headers and body to the reply. A failed connection is one too."""
        data = json.dumps(body).encode()
        try:
            async with self._http().post(self._endpoint.url + path, data=data, headers=self._headers, allow_redirects=False) as response:
                content = await _content(response)
                if content is None:
                    return TryAgain(f"its reply has more than {_MOST_BYTES // 1024**2} MiB")
                return read(response.status, response.headers, without_key(content, self._key))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return TryAgain(f"no connection: {printable(str(error))}", for_load=True, reached=False)
        except TimeoutError:
            return TryAgain(f"no answer within {self._endpoint.timeout:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return TryAgain(f"the connection broke: {type(error).__name__}: {printable(str(error))}")

    async def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout_s = self._endpoint.timeout
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s)),
                trust_env=True,  # proxies
            )
        return self._session


def without_key(text: bytes, key: str | None) -> bytes:
    """UTF-8 `text` without the API key, which a server may repeat, plain or inside JSON. It is hidden before a text is cut."""
    if key is not None and len(key) >= _SHORTEST_SECRET:
        for form in (key, json.dumps(key)[1:-1]):
            text = text.replace(form.encode(), HIDDEN.encode())
    return text


async def _content(response: aiohttp.ClientResponse) -> bytes | None:
    """The whole body; None if it is too long."""
    content = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        content += piece
        if len(content) > _MOST_BYTES:
            return None
    return bytes(content)
