"""What an API server answers when it does not do what was asked, told apart by what to do about it.

`error_of` is the one function that reads status codes and `Status` objects: for answers, and for ERROR events of a watch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST_TEXT = 500
"""Characters of an answer that is no `Status`, such as the page of a proxy."""


@dataclass(frozen=True)
class Cause:
    """One thing that the server objects to; `field` as in `spec.tasks[0].name`, empty where the whole object is meant."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """An API server refused a request.

    `status`: HTTP status, 0 without an answer; `message`: the server's own words; `reason` and `causes`: of its `Status` object;
    `retry_after_s`: when the server asks for the next try, None where it names no time.
    """

    next_step = "see the log of the API server"

    def __init__(
        self, status: int, message: str, *, reason: str = "", causes: tuple[Cause, ...] = (), retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.message = message
        self.reason = reason
        self.causes = causes
        self.retry_after_s = retry_after_s
        super().__init__(f"{status}: {message}" if status else message)


class Missing(ApiError):
    """404 that names an object: there is no such object, or no such namespace."""

    next_step = "check the name"


class NotServed(ApiError):
    """404 that names no object: the server does not know the kind, or does not know it yet, a moment after its start."""

    next_step = "install what serves the kind"


class Conflict(ApiError):
    """409: the object was changed meanwhile, or exists already."""

    next_step = "try again"


class AlreadyExists(Conflict):
    """409 for a new object: there is an object of this name."""

    next_step = "use the object that is there, or another name"


class Expired(ApiError):
    """410: the resource version, or the token of the next page, is too old. A list from the start works."""

    next_step = "list again"


class Forbidden(ApiError):
    """403: the user may not do this, or admission denied it."""

    next_step = "ask the cluster's administrators"


class Unauthenticated(Forbidden):
    """401: the credentials are missing, wrong or expired."""

    next_step = "log in again"


class Invalid(ApiError):
    """400, 422: the object is wrong."""

    next_step = "correct the object"


class TooLarge(Invalid):
    """413: the object is larger than an API server takes."""

    next_step = "move lists and prompts into files in storage"


class Unreachable(ApiError):
    """No answer, a timeout (408), or a failure of the server (5xx): the same request may work later."""

    next_step = "try again in a minute"


class Unintelligible(Unreachable):
    """An answer or an event that is none: what a proxy says, or a server that is broken."""

    next_step = "check that the address is that of an API server"


class TooMany(Unreachable):
    """429: the server sheds load, before it begins with the request."""


_KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotServed,
    408: Unreachable,
    409: Conflict,
    410: Expired,
    413: TooLarge,
    422: Invalid,
    429: TooMany,
}


def error_of(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an answer of `code` (not 2xx) with this body means. `retry_after`: the header of that name."""
    status = _status_in(body)
    details = status.get("details") if isinstance(status.get("details"), dict) else None
    reason = str(status.get("reason") or "")
    kind = _KINDS.get(code, Unreachable if code >= 500 else ApiError)
    if kind is NotServed and details and details.get("name"):
        kind = Missing
    elif kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    text = " ".join(body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())[:_LONGEST_TEXT]
    message = str(status.get("message") or text).strip() or f"HTTP {code}"
    asked_s = _seconds(retry_after)
    if asked_s is None:
        asked_s = _seconds((details or {}).get("retryAfterSeconds"))
    return kind(code, message, reason=reason, causes=_causes(details), retry_after_s=asked_s)


def _causes(details: Mapping[str, Any] | None) -> tuple[Cause, ...]:
    causes = (details or {}).get("causes")
    found = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    return tuple(Cause(_field(cause.get("field")), str(cause.get("reason", "")), str(cause.get("message", ""))) for cause in found)


def _field(field: object) -> str:
    return "" if field in (None, "<nil>") else str(field)


def _status_in(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(asked: object) -> float | None:
    """Whole seconds, the form that API servers write; a date, which a proxy may write, counts as one second. 0 is no time."""
    if asked in (None, "", 0, "0"):
        return None
    text = str(asked).strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1.0
