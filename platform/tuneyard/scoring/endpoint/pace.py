"""The rate limits of an endpoint: requests and tokens are spread evenly over each minute. Pure: the time is an argument.

The generic cell rate algorithm (ITU-T I.371, annex A) with a burst of one: each request moves the earliest time of the next one by its
share of a minute. So no minute has more than the limit and one request.
"""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_S = 60.0


@dataclass
class Pace:
    """Limits per minute; None: no limit. Times are seconds of any clock."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    _next_request: float = 0.0
    _next_tokens: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may start."""
        return max(0.0, self._next_request - now, self._next_tokens - now)

    def start(self, now: float, tokens: float) -> None:
        """A request starts, which will take about `tokens` tokens."""
        if self.requests_per_minute is not None:
            self._next_request = max(now, self._next_request) + _MINUTE_S / self.requests_per_minute
        self._next_tokens = max(now, self._next_tokens)
        self.correct(tokens)

    def correct(self, tokens: float) -> None:
        """A request took `tokens` more (or, below 0, less) than was said at its start."""
        if self.tokens_per_minute is not None:
            self._next_tokens += tokens * _MINUTE_S / self.tokens_per_minute
