"""When the credentials in a kubeconfig expire, as far as they say. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography import x509


def expiry_s(user: Mapping[str, Any]) -> float | None:
    """When the token or the client certificate of a user expires, whichever is first, in seconds since 1970. None: neither says.

    Tokens of service accounts are JSON Web Tokens with the claim `exp` (RFC 7519). The long-lived token of a Secret has none.
    """
    found = (_of_token(str(user.get("token") or "")), _of_certificate(str(user.get("client-certificate-data") or "")))
    return min((moment for moment in found if moment is not None), default=None)


def _of_token(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:  # an opaque token with two dots
        return None
    moment = claims.get("exp") if isinstance(claims, dict) else None
    return float(moment) if isinstance(moment, int | float) and not isinstance(moment, bool) else None


def _of_certificate(encoded: str) -> float | None:
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(encoded)).not_valid_after_utc.timestamp() if encoded else None
    except ValueError:
        return None
