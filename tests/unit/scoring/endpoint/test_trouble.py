"""Pauses grow, an endpoint's own wish wins, patience ends, and one answer ends the trouble."""

from __future__ import annotations

import pytest

from tuneyard.scoring.endpoint.trouble import GivenUp, Trouble


def _asked_again(trouble: Trouble, until_s: float, *, reached: bool = True) -> list[float]:
    """Times of refused requests, of a client that asks as soon as it may."""
    now, times = 0.0, []
    while now <= until_s:
        times.append(now)
        trouble.refused(now, "HTTP 429: slow down", reached=reached)
        now += trouble.wait_s(now)
    return times


def test_ten_minutes_of_refusals_cost_few_requests() -> None:
    assert _asked_again(Trouble(1800.0, 32), 600.0) == [0, 1, 3, 7, 15, 31, 63, *range(123, 601, 60)]


def test_patience_ends_with_the_last_reason() -> None:
    with pytest.raises(GivenUp, match=r"for 30 minutes nothing but: HTTP 429: slow down"):
        _asked_again(Trouble(1790.0, 32), 4000.0)


def test_an_address_that_was_never_reached_is_given_up_soon() -> None:
    with pytest.raises(GivenUp):
        _asked_again(Trouble(1e6, 32), 300.0, reached=False)


def test_a_year_is_not_waited_for() -> None:
    with pytest.raises(GivenUp, match="it asks to wait for 365 days"):
        Trouble(1800.0, 32).refused(0.0, "HTTP 429", retry_after_s=365 * 86400.0)


def test_the_endpoints_own_pause_wins() -> None:
    trouble = Trouble(1800.0, 32)
    trouble.refused(0.0, "HTTP 429", retry_after_s=90.0)
    assert trouble.wait_s(0.0) == 90.0


def test_requests_refused_together_are_one_refusal() -> None:
    trouble = Trouble(1800.0, 32)
    for _ in range(32):
        trouble.refused(0.0, "HTTP 429")
    assert trouble.wait_s(0.0) == 1.0
    assert trouble.width == 16


def test_an_answer_to_an_earlier_request_ends_no_pause() -> None:
    trouble = Trouble(1800.0, 32)
    trouble.refused(0.0, "HTTP 429")
    trouble.answered(0.5)
    assert trouble.since is not None
    trouble.answered(1.0)
    assert trouble.since is None


def test_after_trouble_more_and_more_requests_are_in_flight() -> None:
    trouble = Trouble(1800.0, 32)
    trouble.refused(0.0, "HTTP 429")
    widths = []
    for now in range(2, 1000):
        trouble.answered(float(now))
        widths.append(trouble.width)
    assert widths[0] < 17
    assert widths == sorted(widths)
    assert widths[-1] == 32
