"""Whether a transport sends a refused request again, and after how long. Pure: the transport sleeps."""

from __future__ import annotations

from tuneyard.kubernetes.errors import ApiError, TooMany

MOST_TRIES = 4
LONGEST_PAUSE_S = 10.0
_UNNAMED_S = 1.0
_MOST_DOUBLINGS = 64


def backoff_s(first_s: float, failures: int, longest_s: float) -> float:
    """Seconds before the next try after `failures` failures in a row: `first_s` after the first, then twice as many each time, at most
    `longest_s`. It holds for any number of failures: a server may be away for days."""
    return min(first_s * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS), longest_s)


def pause_before(tries: int, error: ApiError) -> float | None:
    """Seconds until the request is sent again after `tries` tries, the last of which ended in `error`; None where it is not sent again.

    The rule of client-go (`rest/with_retry.go`): for every verb, 429, and 5xx with a Retry-After, because a server that names a time has
    not begun with the request. Any other failure is the caller's, who knows whether the request may be repeated.
    """
    asked_s = error.retry_after_s if error.status == 429 or error.status >= 500 else None
    if asked_s is None and isinstance(error, TooMany):
        asked_s = _UNNAMED_S
    return min(asked_s, LONGEST_PAUSE_S) if asked_s is not None and tries < MOST_TRIES else None
