"""Keeps one broken object from stopping the others: after an error it pauses, longer each time, and its status shows the error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from tuneyard.api import TuneyardError
from tuneyard.api.limits import LONGEST_MESSAGE
from tuneyard.api.secrets import redact
from tuneyard.kubernetes import backoff_s
from tuneyard_operators.hub.clock import written
from tuneyard_operators.kube import ApiError

log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)
_LONGEST_REASON = LONGEST_MESSAGE // 2
"""Characters of a reason. A message that quotes it has words of its own."""
_FIRST_S = 5.0
_LONGEST_S = 300.0
STALLED = "Stalled"
"""The condition of an object that its controller cannot reconcile, by kstatus' name; absent if all is well."""


class Unreadable(Exception):
    """The hub cannot read an object; the message names the unreadable part."""


@dataclass(frozen=True)
class _Rest:
    mark: object
    failures: int
    until_s: float


class Guard(Generic[K]):
    """The pauses of broken objects, by key. `what`: the kind of the objects, for the log."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._rests: dict[K, _Rest] = {}

    def rests(self, key: K, mark: object) -> bool:
        """Whether an object pauses. `mark`: the generation of its spec; a change of it ends the pause."""
        rest = self._rests.get(key)
        return rest is not None and rest.mark == mark and self._clock() < rest.until_s

    def well(self, key: K) -> None:
        self._rests.pop(key, None)

    def failed(self, key: K, mark: object, error: Exception) -> str:
        """Pause an object that raised `error`. Returns the reason, for its status."""
        before = self._rests.get(key)
        failures = before.failures + 1 if before is not None and before.mark == mark else 1
        pause_s = backoff_s(_FIRST_S, failures, _LONGEST_S)
        self._rests[key] = _Rest(mark, failures, self._clock() + pause_s)
        reason = reason_of(error)
        name = "/".join(part for part in key if part) if isinstance(key, tuple) else key
        log.warning("%s %s pauses for %.0f s: %s", self._what, name, pause_s, reason, exc_info=None if _is_expected(error) else error)
        return reason


def reason_of(error: Exception) -> str:
    """The text of an error for the status of an object: its message, and its type if the hub does not expect this kind of error."""
    words = redact(str(error)[:LONGEST_MESSAGE]) or type(error).__name__
    return (words if _is_expected(error) else f"the hub cannot handle it: {type(error).__name__}: {words}")[:_LONGEST_REASON]


def with_stalled(conditions: object, reason: str, generation: int, now: datetime) -> list[Any]:
    """The stored conditions of an object with a `Stalled` condition for `reason`; without that condition if the reason is empty."""
    stored = [each for each in conditions if isinstance(each, Mapping)] if isinstance(conditions, list) else []
    others = [each for each in stored if each.get("type") != STALLED]
    if not reason:
        return others
    before = next((each for each in stored if each.get("type") == STALLED), {})
    since = before.get("lastTransitionTime") or written(now)
    condition = {
        "type": STALLED,
        "status": "True",
        "reason": "Error",
        "message": reason,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
    return [*others, condition]


def _is_expected(error: Exception) -> bool:
    return isinstance(error, Unreadable | ApiError | TuneyardError)
