"""The guard in front of all pages: the user of the connection, the Host header, the origin and token of forms, the headers for browsers.

A browser can be made to send requests to a loopback port by any page that its user visits. So a request must name a loopback host (which
stops DNS rebinding), and a form must come from a page of this console and carry the token of its session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuneyard.api import BadInput
from tuneyard.console.http_limits import is_too_large
from tuneyard.console.peers import is_other_user

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
SESSION = "tuneyard_console"
LARGEST_FORM = 64 << 10
"""Bytes. Forms of the console hold a token and some names."""
POLICY = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class GuardRules:
    """`hosts`: names that a request may ask for; `secret`: of the tokens in forms; `own_user_only`: refuse connections of other users of
    this machine."""

    hosts: frozenset[str] = LOOPBACK
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    own_user_only: bool = True


class Guard:
    """ASGI middleware. `request.state.token` is the token for the forms of the page."""

    def __init__(self, app: ASGIApp, rules: GuardRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if is_too_large(scope["headers"]):
            await PlainTextResponse("The headers of this request are too large. Remove cookies of this site.\n", 431, _HEADERS)(
                scope, receive, send
            )
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if sum(name.lower() == b"host" for name, _ in scope["headers"]) > 1:
            # Which of them counts would differ from reader to reader.
            await PlainTextResponse("This request names more than one host.\n", 400, _HEADERS)(scope, receive, send)
            return
        session = _session_of(headers) or ""
        fresh = "" if session else secrets.token_urlsafe(24)
        scope.setdefault("state", {})["token"] = self._token(session or fresh)
        stranger = await run_in_threadpool(_stranger, scope) if self._rules.own_user_only else ""
        refusal = stranger or self._refusal(scope["method"], headers)
        if refusal:
            await PlainTextResponse(refusal, 403, _HEADERS)(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_more(message, fresh, is_https(scope))]
            await send(message)

        await self._app(scope, receive, guarded)

    def _token(self, session: str) -> str:
        return hmac.new(self._rules.secret, session.encode(), hashlib.sha256).hexdigest()

    def _refusal(self, method: str, headers: Mapping[str, str]) -> str:
        """Why a request is refused; empty for a good one."""
        host = headers.get("host", "")
        if _hostname(host) not in self._rules.hosts:
            return f"The console answers requests to {' or '.join(sorted(self._rules.hosts))}. Open it under one of these names.\n"
        if method not in ("GET", "HEAD") and not _same_origin(headers, host):
            return "This request comes from another site. Open the page in the console, and use its buttons.\n"
        return ""


def _stranger(scope: Scope) -> str:
    """Why a connection of another user of this machine is refused; empty for one's own."""
    other = is_other_user(scope.get("client"), scope.get("server"))
    return "This console belongs to another user of this machine. Start your own: tuneyard console\n" if other else ""


def is_https(scope: Scope) -> bool:
    """Whether a browser reaches the console by https: itself, or at a proxy that says so. Cookies are then for https alone."""
    told = next((value for name, value in scope["headers"] if name.lower() == b"x-forwarded-proto"), b"")
    return scope.get("scheme") == "https" or told.split(b",")[0].strip().lower() == b"https"


def _more(message: Message, fresh: str, https: bool) -> list[tuple[bytes, bytes]]:
    """Headers for a response: the policy, no copy in caches of pages, and the cookie of a new session."""
    known = {name.lower() for name, _ in message["headers"]}
    found = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
    if b"cache-control" not in known:
        found.append((b"Cache-Control", b"no-store"))
    if fresh:
        found.append((b"Set-Cookie", f"{SESSION}={fresh}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if https else ''}".encode()))
    return found


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _same_origin(headers: Mapping[str, str], host: str) -> bool:
    """Whether a browser sends this request from a page of this console. Browsers send Origin with each POST."""
    origin = headers.get("origin", "")
    site = headers.get("sec-fetch-site", "same-origin")
    return site == "same-origin" and origin in (f"http://{host}", f"https://{host}")


def _session_of(headers: Mapping[str, str]) -> str:
    try:
        found: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return found[SESSION].value if SESSION in found else ""


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form. Raises BadInput for a form that is too large, or lacks the token of its session."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            raise BadInput("the form is too large", "use the buttons of the console")
    fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()}
    token: Any = request.state.token
    if not hmac.compare_digest(fields.get("token", "").encode("utf-8", "replace"), str(token).encode()):
        raise BadInput("the form is older than this console, or comes from elsewhere", "reload the page, then use its button again")
    return fields


def local_target(target: str) -> str:
    """A path of this console to go back to; `/` for anything that could be another site."""
    parts = urlsplit(target) if target.isascii() and target.isprintable() else None
    plain = parts is not None and not parts.scheme and not parts.netloc and target.startswith("/") and "\\" not in target
    return target if plain and not target.startswith("//") else "/"
