"""Sends messages about runs to a webhook, in threads: a webhook that hangs or fails delays no run."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from tuneyard.api.schedule_parts import Notify
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.schedules import LIMIT_S, PAUSES_S, SENT, notice_body


class Webhook:
    """Sends one message per run. The address, which often is a secret, reaches neither the status nor the terminal."""

    def __init__(self, namespace: str, schedule: str, pauses_s: Iterable[float] = PAUSES_S, limit_s: float = LIMIT_S) -> None:
        self._namespace, self._schedule = namespace, schedule
        self._pauses_s, self._limit_s = tuple(pauses_s), limit_s
        self._told: dict[str, str] = {}
        self._threads: dict[str, threading.Thread] = {}

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    def told(self) -> Mapping[str, str]:
        """The outcome of each message, by the name of its run."""
        return dict(self._told)

    def send(self, notify: Notify, runs: Iterable[ScheduledRun]) -> None:
        """Send a message about each run whose notice is due."""
        for run in runs:
            if run.notice == "due" and run.name not in self._threads:
                body = notice_body(notify.form, self._namespace, self._schedule, run)
                self._threads[run.name] = threading.Thread(target=self._send, args=(run.name, notify, body), daemon=True)
                self._threads[run.name].start()

    def finish(self, wait_s: float) -> None:
        """Wait for messages under way."""
        deadline = time.monotonic() + wait_s
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _send(self, run: str, notify: Notify, body: Mapping[str, Any]) -> None:
        url = notify.webhook or os.environ.get(notify.webhook_from.secret_key_ref.key if notify.webhook_from is not None else "", "")
        if not url.startswith(("http://", "https://")):
            self._told[run] = "not sent: the address is no URL of http or https; webhookFrom names a variable of the environment here"
            return
        outcome = ""
        for pause_s in (0.0, *self._pauses_s):
            time.sleep(pause_s)
            try:
                outcome, is_final = self._answer(url, body)
            except Exception as error:  # noqa: BLE001 - each message gets an outcome; the text of the error may hold the address
                outcome, is_final = type(error).__name__, False
            if is_final:
                break
        self._told[run] = outcome if outcome == SENT else f"not sent: {outcome}"

    def _answer(self, url: str, body: Mapping[str, Any]) -> tuple[str, bool]:
        """What `_post` returns. A server that drips its answer past the limit is left to a thread of its own."""
        answers: SimpleQueue[tuple[str, bool] | Exception] = SimpleQueue()

        def post() -> None:
            try:
                answers.put(_post(url, body, self._limit_s))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                answers.put(error)

        threading.Thread(target=post, daemon=True).start()
        try:
            answer = answers.get(timeout=self._limit_s)
        except Empty:
            return f"no whole answer came within {self._limit_s:g} s", False
        if isinstance(answer, Exception):
            raise answer
        return answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(url: str, body: Mapping[str, Any], quiet_s: float) -> tuple[str, bool]:
    """Post once. Returns the outcome, and whether no other try is of use. `quiet_s`: longest silence of the server."""
    try:
        request = urllib.request.Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json", "User-Agent": "tuneyard"}, method="POST"
        )
    except ValueError:
        return "the address is no URL", True
    host = request.host.rpartition("@")[2]
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=quiet_s):
            return SENT, True
    except urllib.error.HTTPError as error:
        if 300 <= error.code < 400:
            return f"{host} answers with a redirect, which is not followed", True
        return f"{host} answers {error.code}", 400 <= error.code < 500 and error.code not in (408, 429)
    except http.client.InvalidURL:
        return "the address is no URL", True
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{host} cannot be reached: {type(error).__name__}", False
