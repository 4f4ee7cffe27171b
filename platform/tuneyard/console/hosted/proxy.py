"""Readers by the headers of an authenticating proxy (oauth2-proxy, Envoy), which the console impersonates at the API server.

A header is worth what the way to the console is worth. So a request counts only with the proxy's secret, or from the proxy's addresses, or
both, as configured. Users and groups of Kubernetes itself (`system:`) are never impersonated, and groups only where they are listed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from tuneyard.api import BadInput
from tuneyard.cluster import HubAccess, NotAllowed, NotLoggedIn
from tuneyard.console.hosted.known import KnownReaders
from tuneyard.console.hub import Reader

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LONGEST = 253
_MOST_GROUPS = 200
_OF_KUBERNETES = "system:"


@dataclass(frozen=True, kw_only=True)
class ProxyTrust:
    """Where a request must come from. At least one of `secret` and `networks` is set. `groups`: the groups that may be impersonated."""

    user_header: str
    groups_header: str
    groups: frozenset[str] = frozenset()
    secret_header: str = "X-Tuneyard-Proxy"
    secret: str = ""
    networks: tuple[Network, ...] = ()

    def __post_init__(self) -> None:
        if not self.secret and not self.networks:
            raise BadInput("nothing says which proxy is to be believed", "give the proxy's secret, or its addresses")
        if self.secret and len(self.secret) < 16:
            raise BadInput("the proxy's secret is shorter than 16 characters", "take 32 random ones")

    def check(self, request: Request) -> None:
        """Raises NotAllowed for a request that did not come through the proxy."""
        if self.networks and not self._is_inside(request.client.host if request.client is not None else ""):
            raise NotAllowed("this request did not come through the proxy", "open the console under the address of its proxy")
        given = request.headers.getlist(self.secret_header)
        if self.secret and not (len(given) == 1 and hmac.compare_digest(given[0].encode(), self.secret.encode())):
            raise NotAllowed("this request did not come through the proxy", "open the console under the address of its proxy")

    def user(self, request: Request) -> str:
        """The authenticated user. Raises NotLoggedIn without one, NotAllowed for one of Kubernetes itself."""
        given = request.headers.getlist(self.user_header)
        if not given or not given[0]:
            raise NotLoggedIn("the proxy names no user", f"log in at the proxy; it must send {self.user_header}")
        user = _text_of(given[0])
        if len(given) > 1 or not user or not user.isprintable() or len(user) > _LONGEST:
            raise NotAllowed("the proxy names a user that cannot be one", f"check what it sends as {self.user_header}")
        if user.lower().startswith(_OF_KUBERNETES):
            raise NotAllowed("users of Kubernetes itself cannot use the console", "log in as a person")
        return user

    def groups_of(self, request: Request) -> list[str]:
        """The user's groups among those that may be impersonated."""
        given = [name.strip() for header in request.headers.getlist(self.groups_header) for name in _text_of(header).split(",")]
        known = sorted(self.groups & set(given[:_MOST_GROUPS]))
        return [name for name in known if not name.lower().startswith(_OF_KUBERNETES)]

    def _is_inside(self, host: str) -> bool:
        try:
            address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self.networks)


def _text_of(header: str) -> str:
    """The text of a header in UTF-8, which servers decode as Latin-1; empty for one that is no UTF-8."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return ""


def networks_of(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in the notation 10.0.0.0/8. Raises BadInput."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise BadInput(f"this is no network: {error}", "write it as in 10.0.0.0/8") from None


class ProxyReaders:
    def __init__(self, access: HubAccess, trust: ProxyTrust) -> None:
        self._access = access
        self._trust = trust
        self._known = KnownReaders(access.own())
        self.label = access.address.hub

    def of(self, request: Request) -> Reader:
        """The reader of a request. Raises NotAllowed where it did not come through the proxy, NotLoggedIn without a user."""
        self._trust.check(request)
        user, groups = self._trust.user(request), self._trust.groups_of(request)
        key = hashlib.sha256(json.dumps([user, groups]).encode()).hexdigest()
        return self._known.reader(key, lambda: self._access.in_the_name_of(user, groups), user)

    def close(self) -> None:
        """Nothing stays open."""
