"""What can go wrong with a request, told apart by what to do about it."""

from __future__ import annotations

import msgspec


class ApiError(Exception):
    """An API server refused a request. `status`: HTTP status; `message`: its own words."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{status}: {message}" if status else message)


class Missing(ApiError):
    """404: there is no such object, or no such kind."""


class Conflict(ApiError):
    """409: it exists already, or was changed meanwhile."""


class Expired(ApiError):
    """410: the resource version is too old to watch from."""


class Forbidden(ApiError):
    """401, 403: the credentials are not good, or not good for this."""


class Invalid(ApiError):
    """400, 422: the object is wrong."""


class Unreachable(ApiError):
    """No answer, a timeout, 429 or 5xx: the same request may work later."""


def error_of(status: int, body: bytes) -> ApiError:
    """The error for an answer that is not 2xx."""
    try:
        message = str(msgspec.json.decode(body).get("message") or body.decode(errors="replace"))
    except (ValueError, AttributeError):
        message = body.decode(errors="replace")[:500]
    kinds = {401: Forbidden, 403: Forbidden, 404: Missing, 409: Conflict, 410: Expired, 400: Invalid, 422: Invalid}
    kind = kinds.get(status, Unreachable if status == 429 or status >= 500 else ApiError)
    return kind(status, message.strip() or f"HTTP {status}")
