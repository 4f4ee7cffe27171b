"""Holds out members with frequent outages: after each return they get no new gangs for a longer time, since these would be lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tuneyard_operators.hub.clock import at, written

COUNTS_S = 10.0
"""A shorter outage is not counted."""
_REMEMBERED = timedelta(hours=6)
_FIRST_S = 60.0
_LONGEST_S = 3600.0
_MOST_REMEMBERED = 12


def with_return(returns: Sequence[str], now: datetime) -> list[str]:
    """Times of a member's recent returns, with `now` added."""
    return [*(each for each in returns if now - at(each) < _REMEMBERED), written(now)][-_MOST_REMEMBERED:]


def held_out_until(returns: Sequence[str], now: datetime) -> datetime | None:
    """When a held-out member gets gangs again; None if it is not held out.

    The first return in six hours costs nothing, the second a minute, each further one twice the last pause, up to an hour.
    """
    lately = [at(each) for each in returns if timedelta(0) <= now - at(each) < _REMEMBERED]
    if len(lately) < 2:
        return None
    pause_s = min(_LONGEST_S, _FIRST_S * 2 ** (len(lately) - 2))
    until = lately[-1] + timedelta(seconds=pause_s)
    return until if until > now else None


def why_held_out(returns: Sequence[str], until: datetime) -> str:
    return f"held out until {until:%H:%M:%S} UTC: it came back {len(returns)} times lately"
