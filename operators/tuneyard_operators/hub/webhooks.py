"""Sends messages about runs to the webhooks of Schedules, in the background: a webhook that hangs or fails delays nothing.

The hub posts to hosts alone that its administrators allow: otherwise an author could reach servers that only the hub can reach. It follows
no redirect. Neither the address nor the answer of a webhook reaches a status, an event or the log, because the address often is a secret.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from tuneyard.api.schedule_parts import Notify
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.schedules import LIMIT_S, PAUSES_S, SENT, notice_body
from tuneyard_operators.kube import SECRET, ApiError, Connection, Key

log = logging.getLogger(__name__)
_AT_ONCE_OF_A_NAMESPACE = 4


class _Final(Exception):
    """A failure that no other try can mend; the message is for the status."""


class Webhooks:
    """`hosts`: patterns of host names that the hub may post to, such as `hooks.slack.com` and `*.corp.example.com`.

    `count` is called with each outcome: whether the message was sent.
    """

    def __init__(
        self,
        connection: Connection,
        hosts: Collection[str],
        pauses_s: Iterable[float] = PAUSES_S,
        count: Callable[[bool], None] = lambda _sent: None,
    ) -> None:
        self._count = count
        self._connection = connection
        self._hosts = tuple(hosts)
        self._pauses_s = tuple(pauses_s)
        self._told: defaultdict[Key, dict[str, str]] = defaultdict(dict)
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        self._limits: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE_OF_A_NAMESPACE))

    def told(self, key: Key) -> Mapping[str, str]:
        """The outcomes of messages about runs of a Schedule that its status does not have yet, by the name of the run."""
        return dict(self._told.get(key, {}))

    def send(self, key: Key, notify: Notify, runs: Iterable[ScheduledRun]) -> None:
        """Send a message about each run whose notice is due in the stored status. Outcomes that the status has are forgotten."""
        due = {run.name: run for run in runs if run.notice == "due"}
        self._told[key] = {name: outcome for name, outcome in self._told[key].items() if name in due}
        for name, run in due.items():
            if name not in self._told[key] and (key, name) not in self._tasks:
                self._tasks[key, name] = asyncio.create_task(self._send(key, notify, run))

    def close(self) -> None:
        """End what is under way: another hub leads, and begins anew."""
        for task in self._tasks.values():
            task.cancel()

    async def _send(self, key: Key, notify: Notify, run: ScheduledRun) -> None:
        try:
            async with self._limits[key[0]]:
                outcome = await self._tried(await self._address(key[0], notify), notice_body(notify.form, *key, run))
        except _Final as error:
            outcome = f"not sent: {error}"
        except Exception as error:  # noqa: BLE001 - its text may hold the address
            log.warning("a message about %s/%s cannot be sent: %s", *key, type(error).__name__)
            outcome = f"not sent: {type(error).__name__}"
        finally:
            self._tasks.pop((key, run.name), None)
        self._count(outcome == SENT)
        self._told[key][run.name] = outcome

    async def _address(self, namespace: str, notify: Notify) -> str:
        url = notify.webhook
        if notify.webhook_from is not None:
            reference = notify.webhook_from.secret_key_ref
            try:
                data: Mapping[str, str] = (await self._connection.get(SECRET, namespace, reference.name)).get("data") or {}
            except ApiError:
                raise _Final(f"the hub cannot read the Secret {reference.name}") from None
            if reference.key not in data:
                raise _Final(f"the Secret {reference.name} has no key {reference.key}")
            url = base64.b64decode(data[reference.key]).decode(errors="replace").strip()
        try:
            parts = urlsplit(url or "")
            host = (parts.hostname or "").lower()
        except ValueError:
            raise _Final("its address is no URL") from None
        if parts.scheme not in ("http", "https") or not host:
            raise _Final("its address is no URL of http or https")
        if not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            raise _Final(f"the hub may not post to {host}: its administrators allow hosts by --webhook-host")
        return url or ""

    async def _tried(self, url: str, body: Mapping[str, Any]) -> str:
        outcome = ""
        for pause_s in (0.0, *self._pauses_s):
            await asyncio.sleep(pause_s)
            outcome = await _post(url, body)
            if outcome == SENT:
                return SENT
        return f"not sent: {outcome}"


async def _post(url: str, body: Mapping[str, Any]) -> str:
    """Post once. Returns `sent`, or why another try may help. Raises _Final."""
    import aiohttp

    host = urlsplit(url).hostname
    try:
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json=dict(body), allow_redirects=False) as answer:
            status = answer.status
    except TimeoutError:
        return f"{host} does not answer"
    except aiohttp.ClientError as error:
        return f"{host} cannot be reached: {type(error).__name__}"
    if 200 <= status < 300:
        return SENT
    if 300 <= status < 400:
        raise _Final(f"{host} answers with a redirect, which is not followed")
    if 400 <= status < 500 and status not in (408, 429):
        raise _Final(f"{host} answers {status}")
    return f"{host} answers {status}"
