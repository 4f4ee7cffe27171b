"""Readers by bearer token: of a session's cookies, or of the header Authorization that a proxy adds. The API server judges the token."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from tuneyard.cluster import HubAccess, NotLoggedIn
from tuneyard.console.hosted.known import KnownReaders
from tuneyard.console.hosted.sessions import Sessions, has_expired
from tuneyard.console.hub import Reader

_NEXT = "paste a fresh token below"


class TokenReaders:
    def __init__(self, access: HubAccess, sessions: Sessions) -> None:
        self._access = access
        self.sessions = sessions
        self._known = KnownReaders(access.own())
        self.label = access.address.hub

    def of(self, request: Request) -> Reader:
        """The reader of a request. Raises NotLoggedIn without a token, or with one that says that it has expired."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else self.sessions.token_of(request.cookies)
        if not token:
            raise NotLoggedIn("you are not logged in", "paste a token of this cluster below")
        if has_expired(token):
            raise NotLoggedIn("your token has expired", _NEXT)
        key = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        return self._known.reader(key, lambda: self._access.with_token(token))

    def user_of(self, token: str) -> str:
        """The name of the user behind a token, as the API server knows it. Raises NotLoggedIn where it does not accept the token."""
        if has_expired(token):
            raise NotLoggedIn("this token has expired", _NEXT)
        try:
            return self._access.with_token(token).user()
        except NotLoggedIn:
            raise NotLoggedIn("the cluster does not accept this token", _NEXT) from None

    def close(self) -> None:
        """Nothing stays open."""
