"""Rate limits hold in every minute, whatever the requests are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuneyard.scoring.endpoint.pace import Pace


def _starts(pace: Pace, sizes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Time and tokens of each request, of a client that sends as soon as it may."""
    now, starts = 0.0, []
    for guessed, real in sizes:
        now += pace.wait_s(now)
        pace.start(now, guessed)
        pace.correct(real - guessed)
        starts.append((now, real))
    return starts


@given(limit=st.floats(0.5, 5000), count=st.integers(1, 200))
def test_no_minute_has_more_requests_than_the_limit_and_one(limit: float, count: int) -> None:
    times = [now for now, _ in _starts(Pace(requests_per_minute=limit), [(0, 0)] * count)]
    for first in times:
        assert sum(first <= now < first + 59.999 for now in times) <= limit + 1


@given(limit=st.floats(10, 1e6), sizes=st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 5000)), min_size=1, max_size=100))
def test_no_minute_has_more_tokens_than_the_limit_and_one_request(limit: float, sizes: list[tuple[float, float]]) -> None:
    starts = _starts(Pace(tokens_per_minute=limit), sizes)
    for first, _ in starts:
        inside = [tokens for now, tokens in starts if first <= now < first + 59.999]
        assert sum(inside) <= limit + max(inside) + 1e-3


def test_a_request_larger_than_the_limit_is_sent_and_paid_back() -> None:
    assert [now for now, _ in _starts(Pace(tokens_per_minute=100), [(1000, 1000), (1, 1)])] == [0.0, 600.0]


def test_without_limits_nothing_waits() -> None:
    assert {now for now, _ in _starts(Pace(), [(1e6, 1e6)] * 9)} == {0.0}
