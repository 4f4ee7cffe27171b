"""Keeps an attempt's report up to date on its member, from a thread of its own: training never waits for an API server.

An unreachable API server delays reports, and nothing else. Each report has the newest state; states in between are skipped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tuneyard.api.attempt_report import AttemptState, StopRequest
from tuneyard.kubernetes import backoff_s
from tuneyard.runtime.attempt.member_api import ApiUnavailable, ReportObject

LEAST_S = 2.0
MOST_S = 10.0
LAST_WORDS_S = 300.0
_LONGEST_PAUSE_S = 30.0


def pause_s(*, changed: bool, failures: int) -> float:
    """Seconds from one report to the next: short after a change, longer without one, and doubling with each failure. Pure."""
    if failures:
        return backoff_s(LEAST_S, failures, _LONGEST_PAUSE_S)
    return LEAST_S if changed else MOST_S


class AttemptReporter:
    """Reports each state given to `tell`, keeps the hub's request in `stop`, and sends the last state in `finish`.

    Without a `report` object (no API server) it sends nothing.
    """

    def __init__(self, report: ReportObject | None, complain: Callable[[str], None] = lambda _text: None) -> None:
        self._report = report
        self._complain = complain
        self._changes = threading.Condition()
        self._state = AttemptState()
        self._changed = True
        self._deadline: float | None = None
        self._stop: StopRequest | None = None
        self._heard = False
        self._thread = threading.Thread(target=self._run, name="tuneyard-report", daemon=True)
        if report is not None:
            self._thread.start()

    @property
    def stop(self) -> StopRequest | None:
        """The hub's request to stop. It stays once received."""
        return self._stop

    def tell(self, state: AttemptState) -> None:
        with self._changes:
            self._state, self._changed = state, True
            self._changes.notify()

    def finish(self, state: AttemptState, limit_s: float = LAST_WORDS_S) -> bool:
        """Report the last state, until it is stored or `limit_s` is over. True if it was stored."""
        with self._changes:
            self._state, self._changed = state, True
            self._deadline = time.monotonic() + limit_s
            self._changes.notify()
        if self._report is None:
            return False
        self._thread.join()
        return self._heard

    def _run(self) -> None:
        sent_at, failures = 0.0, 0
        while True:
            with self._changes:
                last = self._deadline is not None
                due_in_s = sent_at + pause_s(changed=self._changed, failures=failures) - time.monotonic()
                if due_in_s > 0 and not (last and not failures):
                    self._changes.wait(due_in_s)
                    continue
                state, self._changed = self._state, False
            sent_at = time.monotonic()
            heard = self._send(state, first_failure=failures == 0)
            failures = 0 if heard else failures + 1
            if last and (heard or time.monotonic() > (self._deadline or 0.0)):
                self._heard = heard
                return

    def _send(self, state: AttemptState, *, first_failure: bool) -> bool:
        assert self._report is not None
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            stop = self._report.put(state.model_copy(update={"observed_at": now}))
        except ApiUnavailable as error:
            if first_failure:
                self._complain(f"the report of this attempt could not be stored ({error}); the attempt continues, and reports again")
            with self._changes:
                self._changed = True
            return False
        self._stop = self._stop or stop
        return True
