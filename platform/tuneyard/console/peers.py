"""The user at the other end of a loopback connection, from Linux's tables of TCP sockets.

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
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""An IPv6 socket reaches an IPv4 port as well. The kernel lists it in the second table, under an IPv4-mapped address."""
_MAPPED = "0000000000000000FFFF0000"
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
"""Columns of the table."""
_CLOSED = "0"
"""The inode of a socket that no process holds. The kernel lists it as root's, whoever has closed it."""


def is_other_user(client: Address | None, server: Address | None) -> bool:
    """Whether another user than root and this process's own opened this connection, or a user that cannot be told.

    False for addresses that are not IPv4, and on systems without these tables.
    """
    if client is None or server is None or len(tuple(_columns(client, server))) < 2:
        return False
    lines: list[str] = []
    for table in _TABLES:
        try:
            lines += table.read_text().splitlines()[1:]
        except OSError:
            continue
    return bool(lines) and uid_of(lines, client, server) not in (0, os.geteuid())


def uid_of(table: Iterable[str], client: Address, server: Address) -> int | None:
    """The owner of the socket from `client` to `server`, IPv4; None where the tables do not have it, or have it as closed."""
    wanted = tuple(_columns(client, server))
    if len(wanted) < 2:
        return None
    for line in table:
        columns = line.split()
        if len(columns) <= _INODE or not columns[_UID].isdigit() or columns[_INODE] == _CLOSED:
            continue
        if tuple(map(_unmapped, (columns[_LOCAL], columns[_REMOTE]))) == wanted:
            return int(columns[_UID])
    return None


def _unmapped(column: str) -> str:
    return column.removeprefix(_MAPPED)


def _columns(*addresses: Address) -> Iterator[str]:
    """Addresses as the table writes them: the four bytes as one number in the machine's order, in hexadecimal."""
    for host, port in addresses:
        try:
            packed = ipaddress.IPv4Address(host).packed
        except ValueError:
            return
        yield f"{struct.unpack('=I', packed)[0]:08X}:{port:04X}"
