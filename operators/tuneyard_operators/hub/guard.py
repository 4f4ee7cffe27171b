"""One object must not stop the others: what raises on its account rests, longer each time, and the reason stands in its status."""

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
_FIRST_S = 5.0
_LONGEST_S = 300.0
STALLED = "Stalled"
"""The condition by kstatus' name for an object that its controller cannot bring further; absent where all is well."""


class Unreadable(Exception):
    """An object says what the hub cannot read; the message says what."""


@dataclass(frozen=True)
class _Rest:
    mark: object
    failures: int
    until_s: float


class Guard(Generic[K]):
    """`what`: the kind of the keys, for the log."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._rests: dict[K, _Rest] = {}

    def rests(self, key: K, mark: object) -> bool:
        """Whether an object is not to be looked at yet. `mark`: what of it people change; one that they have changed rests no more."""
        rest = self._rests.get(key)
        return rest is not None and rest.mark == mark and self._clock() < rest.until_s

    def well(self, key: K) -> None:
        self._rests.pop(key, None)

    def failed(self, key: K, mark: object, error: Exception) -> str:
        """An object raised `error`. Returns the reason, for its status."""
        before = self._rests.get(key)
        failures = before.failures + 1 if before is not None and before.mark == mark else 1
        pause_s = backoff_s(_FIRST_S, failures, _LONGEST_S)
        self._rests[key] = _Rest(mark, failures, self._clock() + pause_s)
        reason = reason_of(error)
        name = "/".join(part for part in key if part) if isinstance(key, tuple) else key
        log.warning("%s %s rests for %.0f s: %s", self._what, name, pause_s, reason, exc_info=None if _is_expected(error) else error)
        return reason


def reason_of(error: Exception) -> str:
    """What an object's status says of an error: its words, and the kind of error where that is not one that the hub knows."""
    words = redact(str(error)[:LONGEST_MESSAGE]) or type(error).__name__
    return (words if _is_expected(error) else f"the hub cannot handle it: {type(error).__name__}: {words}")[: LONGEST_MESSAGE // 2]


def with_stalled(conditions: object, reason: str, generation: int, now: datetime) -> list[Any]:
    """The conditions of an object, as stored, with the reason why it is stalled; an empty reason takes that away."""
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
