"""Members that come and go: the first return costs nothing, each further one twice as long as the last, and old ones are forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tuneyard_operators.hub.outages import held_out_until, with_return

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def returned(*minutes_ago: float) -> list[str]:
    found: list[str] = []
    for minutes in minutes_ago:
        found = with_return(found, NOON - timedelta(minutes=minutes))
    return found


def test_one_outage_is_forgiven() -> None:
    assert held_out_until(returned(0), NOON) is None
    assert held_out_until([], NOON) is None


def test_each_return_holds_it_out_for_longer() -> None:
    assert held_out_until(returned(10, 0), NOON) == NOON + timedelta(minutes=1)
    assert held_out_until(returned(20, 10, 0), NOON) == NOON + timedelta(minutes=2)
    assert held_out_until(returned(*range(11, -1, -1)), NOON) == NOON + timedelta(hours=1)


def test_the_pause_ends_and_old_outages_count_no_more() -> None:
    assert held_out_until(returned(10, 2), NOON) is None
    assert held_out_until(returned(7 * 60, 0), NOON) is None
    assert len(returned(7 * 60, 0)) == 1


def test_a_clock_that_was_set_back_holds_nobody_out() -> None:
    assert held_out_until(returned(-60, -61), NOON) is None
