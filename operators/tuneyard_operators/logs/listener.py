"""Runs the API of logs in each replica, once the front proxy and the certificate are known. Its failures never end the hub."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from tuneyard_operators.kube import ApiError, Connection
from tuneyard_operators.logs.limits import Limits
from tuneyard_operators.logs.member_keys import MemberKeys, Reach
from tuneyard_operators.logs.permissions import Permissions
from tuneyard_operators.logs.server import Gone, LogApi
from tuneyard_operators.logs.storage_keys import StorageKeys
from tuneyard_operators.logs.trust import Trust, keep_trust

log = logging.getLogger(__name__)
_LOOKS_EVERY_S = 60.0
_TRIES_AGAIN_S = 5.0
_LAST_ANSWERS_S = 2.0
"""Longest wait for answers under way when the hub ends. Readers repeat their queries, and another replica answers."""
_LONGEST_LINE = 1 << 17
"""Bytes of a request's path: enough for the cursors of 4,096 sources."""
_MOST_HEADERS = 2048
"""Enough for a user in hundreds of groups, each in a header of its own."""
AddTo = Callable[[web.Application, Permissions], None]


async def serve_logs(
    connection: Connection,
    port: int,
    *,
    reach: Reach,
    namespace: str,
    output: str,
    count: Callable[[int], None],
    history: AddTo | None = None,
    gone: Gone | None = None,
) -> None:
    """Serve on `port` until cancelled.

    `connection`: a connection for the logs alone, not shared with reconciliation; `reach`: connects to a member; `namespace`: the hub's;
    `output`: the URI below which the hub chooses the outputs of jobs; `count`: called with the code of each answer; `history`: adds the
    paths of run history, where the hub has one; `gone`: finds jobs on record.
    """
    limits = Limits()
    keys = StorageKeys(connection, MemberKeys(reach, limits), output, dict(os.environ))
    permissions = Permissions(connection)
    listener = _Listener(connection, port, namespace, keys, limits, count, permissions, gone)
    if history is not None:
        listener.add(history)
    await listener.run()


class _Listener:
    def __init__(
        self,
        connection: Connection,
        port: int,
        namespace: str,
        keys: StorageKeys,
        limits: Limits,
        count: Callable[[int], None],
        permissions: Permissions,
        gone: Gone | None,
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._port = port
        self._trust: Trust | None = None
        self._trouble = ""
        self._permissions = permissions
        self._has_history = False
        self._app = LogApi(connection, keys, permissions, limits, proxy=lambda: self._trusted.proxy, count=count, gone=gone).app()

    def add(self, history: AddTo) -> None:
        """Serve run history too."""
        history(self._app, self._permissions)
        self._has_history = True

    @property
    def _trusted(self) -> Trust:
        assert self._trust is not None  # nothing listens before it is known
        return self._trust

    async def run(self) -> None:
        limits: dict[str, Any] = {"max_line_size": _LONGEST_LINE, "max_field_size": _LONGEST_LINE, "max_headers": _MOST_HEADERS}
        runner = web.AppRunner(self._app, access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_ANSWERS_S, **limits)
        await runner.setup()
        site: web.TCPSite | None = None
        try:
            while True:
                before = self._trust
                await self._look()
                if self._trust is not None and (site is None or self._trust != before):
                    site = await self._listen(runner, site)
                await asyncio.sleep(_LOOKS_EVERY_S if self._trust is not None and not self._trouble else _TRIES_AGAIN_S)
        finally:
            await runner.cleanup()

    async def _look(self) -> None:
        """Read certificate and front proxy. If they cannot be read, the last ones stay in use."""
        try:
            now = datetime.datetime.now(datetime.UTC)
            self._trust = await keep_trust(self._connection, self._namespace, now, history=self._has_history)
            trouble = ""
        except (ApiError, ValueError) as error:
            trouble = str(error)
        except Exception as error:  # an unexpected object must not end the hub
            log.exception("the API of logs cannot read what it needs")
            trouble = type(error).__name__
        if trouble and trouble != self._trouble:
            log.warning(
                "logs are still served with the last certificate, although %s" if self._trust is not None else "logs are not served: %s",
                trouble,
            )
        self._trouble = trouble

    async def _listen(self, runner: web.AppRunner, before: web.TCPSite | None) -> web.TCPSite | None:
        """Listen again, with the current certificates. Open connections keep the earlier ones."""
        try:
            context = _context(self._trusted)
            if before is not None:
                await before.stop()
            site = web.TCPSite(runner, port=self._port, ssl_context=context)
            await site.start()
        except OSError as error:  # ssl.SSLError is one
            log.warning("logs are not served on port %d: %s", self._port, error)
            self._trouble = str(error)
            return None
        log.info("logs are served on port %d", self._port)
        return site


def _context(trust: Trust) -> ssl.SSLContext:
    """TLS context. A client without a certificate gets a 401; a client with one of another authority fails in the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=trust.proxy.authority)
    with tempfile.TemporaryDirectory() as folder:  # of mode 0700; ssl reads keys from files alone
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_text(trust.serving.certificate)
        key.write_text(trust.serving.key)
        context.load_cert_chain(certificate, key)
    return context
