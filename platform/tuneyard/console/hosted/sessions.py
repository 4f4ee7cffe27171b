"""A reader's token in the cookies of their browser, encrypted with the console's key. No replica keeps a session, no log shows a token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
import zlib
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken

from tuneyard.api import BadInput

COOKIE = "tuneyard_reader"
"""Cookies `tuneyard_reader_0`, `_1`, …: browsers keep 4,096 bytes in one."""
MOST_COOKIES = 4
_SIZE = 3_800
_LONGEST_TOKEN = 10_000


class Sessions:
    """`key`: any bytes from 16 on, the same in all replicas. `hours`: the longest life of a session."""

    def __init__(self, key: bytes, hours: float) -> None:
        if len(key) < 16:
            raise BadInput("the key of sessions is shorter than 16 bytes", "take 32 random ones")
        self._fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"session" + key).digest()))
        self._seconds = int(hours * 3600)

    def cookies(self, token: str) -> dict[str, str]:
        """The cookies that hold a token. Raises BadInput for one that is too long or no token."""
        if not token or not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST_TOKEN:
            raise BadInput("this is no bearer token", "paste the token alone, as `kubectl create token NAME` prints it")
        sealed = self._fernet.encrypt(zlib.compress(token.encode())).decode()
        parts = [sealed[at : at + _SIZE] for at in range(0, len(sealed), _SIZE)]
        if len(parts) > MOST_COOKIES:
            raise BadInput("the token is too long for the cookies of a browser", "use one with fewer groups")
        return {f"{COOKIE}_{number}": part for number, part in enumerate(parts)}

    def token_of(self, cookies: Mapping[str, str]) -> str | None:
        """The token in the cookies of a request. None: there is none, or it was sealed with another key, or is too old."""
        sealed = "".join(cookies.get(f"{COOKIE}_{number}", "") for number in range(MOST_COOKIES))
        try:
            return zlib.decompress(self._fernet.decrypt(sealed.encode(), ttl=self._seconds)).decode()
        except (InvalidToken, zlib.error, UnicodeError):
            return None


def has_expired(token: str) -> bool:
    """Whether a JSON web token says that it has expired. Its signature is not checked: the API server does that. False for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return False
    try:
        body = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    expires = body.get("exp") if isinstance(body, dict) else None
    return isinstance(expires, int | float) and not isinstance(expires, bool) and expires <= time.time()
