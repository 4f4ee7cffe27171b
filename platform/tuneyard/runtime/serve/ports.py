"""The address of a server: whether it is free, and who could reach it."""

from __future__ import annotations

import ipaddress
import socket

from tuneyard.api import BadInput

_MORE_PORTS = 100


def check_address(host: str, port: int, *, has_key: bool) -> int:
    """The port, or a free one for 0. Raises BadInput where it is in use, or where others would reach a server without a key."""
    if not is_loopback(host) and not has_key:
        raise BadInput(
            f"--host {host} can be reached from other machines, and no key is set", "set one: --api-key KEY, or TUNEYARD_API_KEY"
        )
    try:
        family, _, _, _, _ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(
            f"--host {host} is no address of this machine: {error.strerror or error}", "leave it out, or give 0.0.0.0"
        ) from error
    reason = _why_taken(family, host, port)
    if isinstance(reason, int):
        return reason
    free = next((more for more in range(port + 1, min(port + _MORE_PORTS, 65536)) if isinstance(_why_taken(family, host, more), int)), 0)
    raise BadInput(f"port {port} of {host} cannot be used: {reason}", f"take a free one: --port {free}")


def _why_taken(family: int, host: str, port: int) -> int | str:
    """The port that can be bound, or why it cannot."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return int(probe.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(host: str, port: int) -> str:
    """The address for clients on this machine: one of this machine's own where the server listens at all of them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"
