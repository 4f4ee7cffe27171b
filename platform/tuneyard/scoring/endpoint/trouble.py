"""An endpoint in trouble: it refuses requests for load, or cannot be reached. Pure: the time and chance are arguments.

In trouble one request at a time asks again, after pauses that double up to a minute, or that the endpoint names (Retry-After). After the
first answer requests flow again, at first half as many at once as before; each answer then allows a little more (additive increase,
multiplicative decrease: Chiu and Jain 1989).
"""

from __future__ import annotations

from dataclasses import dataclass, field

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_FIRST_CONTACT_S = 120.0
"""Patience with an endpoint that was never reached: its URL may be wrong."""


class GivenUp(Exception):
    """The endpoint has not answered for longer than the task's patience. The message is the reason."""


@dataclass
class Trouble:
    """`patience_s`: longest time without an answer. `at_once`: most requests in flight. Times are seconds of any clock."""

    patience_s: float
    at_once: int
    width: float = field(init=False)
    """Requests that may be in flight now."""
    since: float | None = None
    """Time of the first failure after the last answer; None: no trouble."""
    _quiet_since: float | None = None
    """Time of the first failure of any kind after the last answer."""
    _reached: bool = False
    _pause_s: float = 0.0
    _not_before: float = float("-inf")

    def __post_init__(self) -> None:
        self.width = float(self.at_once)

    def wait_s(self, now: float) -> float:
        """Seconds until a request may ask again."""
        return max(0.0, self._not_before - now)

    def answered(self, now: float) -> None:
        """A request has its answer. The trouble is over, unless that request was sent before the pause began."""
        self._reached, self._quiet_since = True, None
        if now >= self._not_before:
            self.since, self._pause_s = None, 0.0
            self.width = min(float(self.at_once), self.width + 1 / self.width)

    def failed(self, now: float, reason: str) -> None:
        """A request failed for another reason. Raises GivenUp if nothing was answered for longer than the patience."""
        self._reached = True
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        if now - self._quiet_since > self.patience_s:
            raise GivenUp(f"for {_words(now - self._quiet_since)} nothing but: {reason}")

    def refused(self, now: float, reason: str, *, reached: bool = True, retry_after_s: float | None = None, chance: float = 0.0) -> None:
        """A request was refused (`reached`), or got no connection. `chance`, 0 to 1, lengthens the pause by up to a quarter.

        Raises GivenUp if the endpoint has been in trouble for longer than the patience, or asks for a longer pause.
        """
        if self.since is None:
            self.since = now
            self.width = max(1.0, self.width / 2)
        self._reached = self._reached or reached
        patience_s = self.patience_s if self._reached else min(self.patience_s, _FIRST_CONTACT_S)
        lasted_s = now - self.since
        if lasted_s + (retry_after_s or 0.0) > self.patience_s and retry_after_s:
            raise GivenUp(f"it asks to wait for {_words(retry_after_s)}: {reason}")
        if lasted_s > patience_s:
            raise GivenUp(f"for {_words(lasted_s)} nothing but: {reason}")
        if now >= self._not_before:  # requests that were in flight together are one refusal
            self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s or _FIRST_PAUSE_S)
            self._not_before = now + self._pause_s * (1 + chance / 4)
        self._not_before = max(self._not_before, now + (retry_after_s or 0.0))


def _words(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
