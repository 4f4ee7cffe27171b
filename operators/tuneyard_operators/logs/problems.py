"""Refusals and failures of the API of logs, as a Kubernetes `Status` with code, reason and message."""

from __future__ import annotations

from typing import Any

from tuneyard.cluster.log_api import LOG_GROUP

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Problem(Exception):
    """An answer other than 200. `name`: the object that it is about, `kind` its group and plural: without these, clients take a 404 for
    that of an API that does not exist. `cause`: a machine-readable reason for clients; `next_step`: its message."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        name: str = "",
        kind: tuple[str, str] = (LOG_GROUP, "jobspecs"),
        cause: str = "",
        next_step: str = "",
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.name = name
        self.kind = kind
        self.cause = cause
        self.next_step = next_step
        self.retry_after_s = retry_after_s

    def to_json(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self.name:
            group, kind = self.kind
            details |= {"group": group, "kind": kind, "name": self.name}
        if self.cause:
            details["causes"] = [{"reason": self.cause, "message": self.next_step}]
        if self.retry_after_s:
            details["retryAfterSeconds"] = self.retry_after_s
        said = {"status": "Failure", "code": self.code, "reason": _REASONS.get(self.code, "Unknown"), "message": self.message}
        return {"apiVersion": "v1", "kind": "Status", "metadata": {}, **said, **({"details": details} if details else {})}

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}
