"""Recognises the errors of a rank that lost a peer. Imports neither torch nor Ray."""

from __future__ import annotations

import re

_LOST = re.compile(
    r"(?i)connection (was likely )?(closed|reset|refused)|broken pipe|remote process exited|ncclRemoteError|socket timeout|"
    r"peer .*(closed|lost)|timed out waiting .*ms for|watchdog caught collective"
)


def is_collateral(message: str) -> bool:
    """True for the error of a rank that lost a peer."""
    return _LOST.search(message) is not None
