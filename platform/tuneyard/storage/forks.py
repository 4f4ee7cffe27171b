"""Whether this process is a fork of one that has used clients of remote stores.

Such clients have threads (obstore's runtime, the JVM of libhdfs), which a fork does not have: a request would wait for them for ever.
"""

from __future__ import annotations

import os

from tuneyard.api import StorageError

_user: int | None = None
"""The first process that has used a client, among this one and those that it was forked from."""


def use_clients() -> None:
    """Remember that this process uses clients of remote stores from now on."""
    global _user
    if _user is None:
        _user = os.getpid()


def is_cut_off() -> bool:
    """Whether requests would hang here, because a process above this fork has used clients."""
    return _user is not None and _user != os.getpid()


def refuse_in_fork(url: str, doing: str) -> None:
    """Remember a use of a client. Raises StorageError where it would hang. `doing`: the operation on `url`, such as "read"."""
    if is_cut_off():
        raise StorageError(f"cannot {doing} {url}: this process is a fork, in which clients of stores do not work", "report this as a bug")
    use_clients()
