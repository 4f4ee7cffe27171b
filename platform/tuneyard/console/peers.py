"""The user at the other end of a loopback connection, from Linux's table of TCP sockets.

A loopback port answers every user of the machine. The console reads with the rights of the user who started it, and so answers this user
and root alone.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

Address = tuple[str, int]
_TABLE = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID = 1, 2, 7
"""Columns of the table."""


def is_other_user(client: Address | None, server: Address | None) -> bool:
    """Whether another user than root and this process's own opened this connection. False where the system does not tell."""
    if client is None or server is None:
        return False
    try:
        table = _TABLE.read_text().splitlines()[1:]
    except OSError:
        return False
    found = uid_of(table, client, server)
    return found is not None and found not in (0, os.geteuid())


def uid_of(table: Iterable[str], client: Address, server: Address) -> int | None:
    """The owner of the socket from `client` to `server`, IPv4; None where the table does not have it."""
    wanted = tuple(_columns(client, server))
    if len(wanted) < 2:
        return None
    for line in table:
        columns = line.split()
        if len(columns) > _UID and (columns[_LOCAL], columns[_REMOTE]) == wanted and columns[_UID].isdigit():
            return int(columns[_UID])
    return None


def _columns(*addresses: Address) -> Iterator[str]:
    """Addresses as the table writes them: the four bytes as one number in the machine's order, in hexadecimal."""
    for host, port in addresses:
        try:
            packed = ipaddress.IPv4Address(host).packed
        except ValueError:
            return
        yield f"{struct.unpack('=I', packed)[0]:08X}:{port:04X}"
